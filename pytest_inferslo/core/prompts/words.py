"""The vocabulary of synthetic prompts: 512 short, common English words.

Each is one token, its leading space included, in the vocabularies of 32,000 entries and more that served
models use; how many tokens a word costs elsewhere is what `TokenCounts` measures.
"""

from __future__ import annotations

_TEXT = """
about above accept across action active actual address advice affect afraid after again against agency agent
ago agree ahead air alarm album allow almost alone along already also although always amount ancient and
anger angle animal another answer any apart appeal apple apply area argue arm army around arrive art article
aside ask assume attack attempt author avoid award away baby back bad bag balance ball band bank bar base
basic basket battle beach bear beat beauty became because become bed been before began begin behind being
believe bell belong below bench beside best better between beyond big bill bird birth bit black blame blind
block blood blow blue board boat body bone book border born both bottle bottom bought bound box boy brain
branch brave bread break breath brick bridge brief bright bring broad broken brother brought brown build
burn bus business busy but buy cake call calm came camera camp can capital captain car card care carry case
cash castle cat catch caught cause cell center central century certain chain chair chance change charge
cheap check cheese chest chicken chief child choice choose church circle city claim class clean clear climb
clock close cloth cloud club coach coast coat code coffee cold collect color column come common company
complete concern connect consider contact contain content context control cook cool copy core corner correct
cost cotton could council count country couple course court cover cow craft crash cream create credit crew
crime critical cross crowd cry culture cup current curve custom cut cycle daily damage dance danger dark
data date daughter day dead deal dear death debate decade decide deep degree delay demand depend depth
describe desert design desk detail develop device dinner direct dirt discuss disease distance divide doctor
document dog dollar door double doubt down draft dramatic draw dream dress drink drive drop dry due during
dust duty each eager early earn earth ease east easy eat economy edge edit editor effect effort eight either
elect element else emotion empire empty enable end enemy energy engine enjoy enough enter entire entry equal
error escape even event ever every exact example except exchange exercise exist expect expert explain
express extra eye face fact factor fail fair faith fall false family famous far farm fast father fault favor
fear feature feed feel fell felt female fence few field fifth fight figure file fill film final finance find
fine finger finish fire firm first fish fit five fix flag flat flight floor flow flower fly focus follow
food foot for force foreign forest forget form formal former forward found four frame free fresh friend from
front fruit fuel full fun function fund further future gain game garden gas gate gather gave general gentle
get giant gift girl give glad glass global goal god gold golden gone good got govern grade grand grant grass
great green grew ground group grow growth guard guess guest guide gun had hair half hall hand handle hang
happen happy hard harm hat hate have head health hear heart heat heavy held help her here high hill him
"""

WORDS: tuple[str, ...] = tuple(_TEXT.split())
