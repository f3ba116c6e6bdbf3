"""Reads flags through Flagsmith's SDK for Python, and again for each further line of input, with the same client and
its connections. The client does not retry."""

import json
import os
import sys

from flagsmith import Flagsmith
from urllib3 import Retry

plan = json.loads(sys.stdin.readline())
flagsmith = Flagsmith(
    environment_key=plan["key"], api_url=os.environ["FLAGSMITH_API_URL"], retries=Retry(total=0, redirect=0)
)
identity = plan["subjects"]["nobody special"]["identifier"]

while True:
    flag = flagsmith.get_identity_flags(identity).get_flag("max_items")
    print("answers " + json.dumps({"flag": [flag.enabled, flag.value]}), flush=True)
    if not sys.stdin.readline():
        break
