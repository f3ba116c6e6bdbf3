"""Reads flags through OpenFeature's SDK and its OFREP provider for Python. Reads one line of JSON, and prints one."""

import json
import os
import sys

from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext

plan = json.loads(sys.stdin.readline())
# This version of the provider does not read the variable itself.
endpoint = os.environ["OFREP_ENDPOINT"]


def client(domain, base_url=endpoint, key=None):
    headers = {"X-API-Key": key} if key else {}
    api.set_provider(OFREPProvider(base_url, headers_factory=lambda: headers), domain)
    return api.get_client(domain)


def context(name):
    if name is None:
        return EvaluationContext()
    subject = plan["subjects"][name]
    return EvaluationContext(subject["identifier"], subject.get("traits", {}))


def ask(asked, question):
    resolve = getattr(asked, f"get_{question['type']}_details")
    details = resolve(question["flag"], question["default"], context(question.get("subject")))
    if details.error_code:
        return {"value": details.value, "reason": details.reason, "error": details.error_code}
    return {"value": details.value, "reason": details.reason, "variant": details.variant}


plain = client("plain")
first = plan["questions"][0]
secret = {"flag": "fraud_threshold", "type": "integer", "default": 1, "subject": "for servers"}
metadata = plain.get_integer_details("max_items", 0, context("nobody special")).flag_metadata

answers = {
    "questions": [ask(plain, question) for question in plan["questions"]],
    "metadata": dict(metadata),
    "server_key": ask(client("server", key=plan["server_key"]), secret),
    "wrong_key": ask(client("wrong", key="harbour-client-key-of-another"), first),
    "server_down": ask(client("down", base_url=plan["nobody"]), first),
}
print("answers " + json.dumps(answers), flush=True)
