"""The one exception of triax."""


class Error(RuntimeError):
    """Says what is wrong, with values, and what was expected. `code` is the exit code that a program of triax
    would end with (docs/launching.md#exit-codes): 64 a bad flag, 65 bad data, 66 not found, 78 a bad configuration."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code
