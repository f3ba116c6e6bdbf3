"""Answers for Python's `re`, a line of JSON for a line of JSON, until standard input ends.

A request is [pattern, text]. The answer is "match" or "none", "refused" where the pattern does not compile, or "time" where
that or the match takes more than a second, or where versions of Python do not agree.
"""

import json
import re
import signal
import sys
import warnings

warnings.simplefilter("ignore")


# The flag of (?t), which has no effect. Python 3.13 no longer knows it and refuses the pattern, as Remora does.
TEMPLATE = 1


class Time(Exception):
    pass


def stop(*_):
    raise Time


def answer(pattern, text):
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        compiled = re.compile(pattern)
        if compiled.flags & TEMPLATE:
            return "time"
        return "match" if compiled.match(text) else "none"
    except Time:
        return "time"
    except (RecursionError, OverflowError, MemoryError, SystemError):
        # These are limits and faults of this interpreter: they say nothing about the meaning of the pattern.
        return "time"
    except re.error:
        return "refused"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


signal.signal(signal.SIGALRM, stop)
for line in sys.stdin.buffer:
    try:
        reply = answer(*json.loads(line))
    except Time:
        reply = "time"
    sys.stdout.write(reply + "\n")
    sys.stdout.flush()
    re.purge()
