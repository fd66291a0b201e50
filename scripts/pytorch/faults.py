"""What ends a comparison before its table: one line on stderr and an exit code as the program's own."""

BAD_INPUT = 2
FAILED_RANK = 3


class Fault(Exception):
    """code: the exit code, BAD_INPUT or FAILED_RANK."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(line)
        self.code = code
