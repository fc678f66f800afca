"""A topic that is deleted and made again: whether it may be there after a stop, and with what."""

from tests.model.account import Account, Defect


class TopicAccount:
    """What programs were told of a topic of one partition.

    Attributes:
        account: What they know of its records; None: there is no such topic.
        deleting, making: It is being deleted, made.
        half_deleted: What was in it if a stop interrupted that; a power cut may bring it back.
        is_half_made: Making it was interrupted; a power cut may take it, unless it was used.
    """

    def __init__(self, name: str, account: Account | None) -> None:
        self.name = name
        self.account = account
        self.deleting = self.making = self.is_half_made = False
        self.half_deleted: Account | None = None

    def begin_deleting(self) -> None:
        """Note that its deletion is being asked for."""
        self.deleting = True

    def deleted(self) -> None:
        """Note that it was deleted, for good."""
        self.deleting = False
        self.account = None

    def begin_making(self) -> None:
        """Note that its creation is being asked for."""
        self.making = True

    def made(self, account: Account) -> None:
        """Note that it was created, for good."""
        self.making = self.is_half_made = False
        self.half_deleted = None
        self.account = account

    def settle(self, empty: Account, *, is_there: bool) -> None:
        """Find out what became of it in a stop, and continue from there.

        Promises 2 and 3: a topic that was made, and whose records are durable, is there; one that
        was deleted is not there again.

        Args:
            empty: What is known of it if it was only just made.
            is_there: Whether it is there now.
        """
        if is_there and self.account is None:
            if self.making:
                self.account, self.is_half_made = empty, True
            elif self.half_deleted is not None:
                self.account = self.half_deleted
            else:
                raise Defect(f"{self.name} is there again")
            self.half_deleted = None
        elif self.account is not None and not is_there:
            if self.deleting:
                self.half_deleted = self.account
            elif not self.is_half_made or self.account.is_promised:
                raise Defect(f"{self.name} is gone")
            self.account = None
        self.deleting = self.making = False
