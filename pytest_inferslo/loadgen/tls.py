"""TLS over a connection: the same socket and stamps, with OpenSSL working on memory between them."""

from __future__ import annotations

import ssl

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.connection import READ_SIZE, Connection, clock


class TlsConnection(Connection):
    """The connection stands once the handshake is done; `sent` is when a request went to OpenSSL."""

    __slots__ = ("_incoming", "_outgoing", "_tls")

    def _established(self) -> None:
        context = self.target.tls
        assert context is not None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=self.target.host)
        self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()
            self.owner.connect_failed(self, Outcome.TLS_ERROR, str(error))
            return
        self._flush()
        self._ready()

    def _transmit(self, data: bytes) -> None:
        self.sent = clock()
        self._tls.write(data)
        self._flush()

    def _flush(self) -> None:
        data = self._unsent + self._outgoing.read()
        if not data:
            return
        try:
            done = self._send(data)
        except BlockingIOError:
            done = 0
        except OSError:
            self._unsent = b""
            if self.standing:
                self._lost(reset=True)
            return
        self._unsent = data[done:]
        if self._unsent:
            self._write_watcher.start(self._writable)

    def _writable(self) -> None:
        if self._unsent:
            try:
                self._send_rest()
            except Exception as error:
                self.owner.broke(self, error)
        else:
            super()._writable()

    def _received(self, data: bytes, t: int) -> None:
        self._incoming.write(data)
        if not self.standing:
            self._shake_hands()
            return
        parts: list[bytes] = []
        ended, fault = False, ""
        try:
            while part := self._tls.read(READ_SIZE):
                parts.append(part)
            ended = True  # close_notify: no more comes, whether or not the socket is closed too
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            fault = str(error)
        self._flush()
        if parts:
            super()._received(b"".join(parts), t)
        if fault and self.busy:
            self.reply.give_up(Outcome.TLS_ERROR, fault, t)
            self.owner.answered(self)
        elif fault and self.open:
            self.owner.idle_ended(self, data)
        elif ended and self.open:
            self._lost(reset=False)
