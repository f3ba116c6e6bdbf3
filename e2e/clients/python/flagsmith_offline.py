"""Evaluates the document with Flagsmith's own engine, without a server: the reference for `expected.json`."""

import json
import sys

from flagsmith import Flagsmith
from flagsmith.offline_handlers import LocalFileHandler

plan = json.loads(sys.stdin.readline())
flagsmith = Flagsmith(offline_mode=True, offline_handler=LocalFileHandler(plan["document"]))


def pairs(flags):
    return {flag.feature_name: [flag.enabled, flag.value] for flag in flags.all_flags()}


def identity(subject):
    return pairs(flagsmith.get_identity_flags(subject["identifier"], subject.get("traits", {})))


answers = {
    "environment": pairs(flagsmith.get_environment_flags()),
    "identities": {name: identity(subject) for name, subject in plan["subjects"].items()},
    "anonymous": identity(plan["anonymous"]),
}
print("answers " + json.dumps(answers), flush=True)
