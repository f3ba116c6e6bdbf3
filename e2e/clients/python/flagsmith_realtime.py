"""Follows Flagsmith's realtime updates through its SDK for Python, in local evaluation: the SDK fetches the document
when an event says that it changed."""

import json
import os
import sys
import threading
import time
from urllib.parse import urljoin

from flagsmith import Flagsmith

plan = json.loads(sys.stdin.readline())
api_url = os.environ["FLAGSMITH_API_URL"]
flagsmith = Flagsmith(
    environment_key=plan["key"],
    api_url=api_url,
    enable_local_evaluation=True,
    enable_realtime_updates=True,
    realtime_api_url=urljoin(api_url, "/"),
    environment_refresh_interval_seconds=86_400,
)


def tell():
    told = None
    while True:
        flag = flagsmith.get_environment_flags().get_flag(plan["flag"])
        answers = {"flag": [flag.enabled, flag.value]}
        if answers != told:
            told = answers
            print("answers " + json.dumps(answers), flush=True)
        # The loop reads flags that the SDK has in memory, so it sends no request.
        time.sleep(0.01)


threading.Thread(target=tell, daemon=True).start()
sys.stdin.read()
