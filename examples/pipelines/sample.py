"""Sample logs for the pipelines: six hours of sshd and Apache.

    python3 examples/pipelines/sample.py ssh > ssh.log
    python3 examples/pipelines/sample.py web > web.log

The lines are always the same: normal logins, one address that tries root all the time, two bursts
of guesses, and a web server that is restarted in between.
"""

import random
import sys
from datetime import datetime, timedelta

_BEGIN = datetime(2026, 3, 2, 6)
_MINUTES = 360
_PEOPLE = ("ada", "grace", "ken", "barbara")
_GUESSES = ("admin", "test", "oracle", "postgres", "ubuntu", "git", "pi", "guest")


def ssh(chance: random.Random) -> list[tuple[datetime, str]]:
    """Return what sshd says, and when."""
    said = []
    for minute in range(_MINUTES):
        now = _BEGIN + timedelta(minutes=minute)
        if chance.random() < 0.15:
            user = chance.choice(_PEOPLE)
            if chance.random() < 0.2:
                said.append((now, f"Failed password for {user} from 10.0.0.{len(user)} port 50022"))
            said.append((now, f"Accepted publickey for {user} from 10.0.0.{len(user)} port 50022"))
        said += [(now, "Failed password for root from 203.0.113.7 port 4711")] * (
            chance.random() < 0.3
        )
        for address, begin, length in (("198.51.100.23", 70, 12), ("192.0.2.99", 250, 25)):
            for _ in range(chance.randrange(8, 20) if begin <= minute < begin + length else 0):
                user = chance.choice(_GUESSES)
                said.append((now, f"Failed password for invalid user {user} from {address} port 9"))
    spread = [(now + timedelta(seconds=chance.randrange(60)), text) for now, text in said]
    return [
        (now, f"{now:%b} {now.day:2} {now:%T} shell sshd[{1000 + n}]: {text} ssh2")
        for n, (now, text) in enumerate(sorted(spread))
    ]


def web(chance: random.Random) -> list[tuple[datetime, str]]:
    """Return what Apache says, and when."""
    said = []
    for minute in range(_MINUTES):
        now = _BEGIN + timedelta(minutes=minute, seconds=chance.randrange(60))
        stamp = f"[{now:%a %b %d %T} 2026]"
        if chance.random() < (0.9 if 100 <= minute < 130 else 0.1):
            client = f"198.51.100.{chance.randrange(1, 255)}"
            said.append((now, f"{stamp} [error] [client {client}] File does not exist: /srv/old"))
        if minute == 130:
            said.append((now, f"{stamp} [notice] Graceful restart requested, doing restart"))
    return said


if __name__ == "__main__":
    for _, line in {"ssh": ssh, "web": web}[sys.argv[1]](random.Random(7)):
        print(line)
