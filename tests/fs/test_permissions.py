"""The mode of a name that has the records of several files, beside the rules of POSIX."""

import itertools
import stat

from logfs.fs.kernel.permissions import FileAttributes, common

USERS = {  # a user and the groups
    "alice": (1, {10}),
    "bob": (2, {20}),
    "carol": (3, {10, 20}),
    "dave": (4, {30}),
}
OWNERS = [(1, 10), (2, 10), (1, 20), (2, 20)]
MODES = [0o444, 0o440, 0o400, 0o404, 0o044, 0o040, 0o000]


def may_read(mode: int, owner: tuple[int, int], user: int, groups: set[int]) -> bool:
    if user == owner[0]:
        return bool(mode & 0o400)
    return bool(mode & (0o040 if owner[1] in groups else 0o004))


def test_a_user_may_read_the_name_only_if_the_user_may_read_every_file() -> None:
    files = [(mode, owner) for mode in MODES for owner in OWNERS]
    for pair in itertools.combinations_with_replacement(files, 2):
        found = [FileAttributes(stat.S_IFREG | mode, *owner, 0, 0) for mode, owner in pair]
        mode, *owner = common(found)
        for name, (user, groups) in USERS.items():
            answer = may_read(mode, (owner[0], owner[1]), user, groups)
            due = all(may_read(one, of, user, groups) for one, of in pair)
            assert answer <= due, (name, pair)
            is_exact = pair[0][1] == pair[1][1] or all(one == 0o444 for one, _ in pair)
            same_group = pair[0][1][1] == pair[1][1][1] and all(one == 0o440 for one, _ in pair)
            if is_exact or (same_group and user not in {of[0] for _, of in pair}):
                assert answer == due, (name, pair)
