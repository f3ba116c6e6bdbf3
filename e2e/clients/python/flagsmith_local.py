"""Reads flags through Flagsmith's SDK for Python in local evaluation: the SDK fetches the document from the sidecar,
and evaluates in this process."""

import json
import os
import sys

import requests
from flagsmith import Flagsmith

plan = json.loads(sys.stdin.readline())
api_url = os.environ["FLAGSMITH_API_URL"]
flagsmith = Flagsmith(environment_key=plan["key"], api_url=api_url, enable_local_evaluation=True)


def pairs(flags):
    return {flag.feature_name: [flag.enabled, flag.value] for flag in flags.all_flags()}


def identity(subject):
    return pairs(flagsmith.get_identity_flags(subject["identifier"], subject.get("traits", {})))


# The same document, without gzip.
plain = requests.get(
    f"{api_url}environment-document/",
    headers={"X-Environment-Key": plan["key"], "Accept-Encoding": "identity"},
    timeout=30,
)

answers = {
    "environment": pairs(flagsmith.get_environment_flags()),
    "identities": {name: identity(subject) for name, subject in plan["subjects"].items()},
    "anonymous": identity(plan["anonymous"]),
    "segments": sorted(
        segment.name for segment in flagsmith.get_identity_segments("guest-1", {"plan": "business"})
    ),
    "document": plain.json(),
}
print("answers " + json.dumps(answers), flush=True)
