"""Reads flags of experiments through Flagsmith's SDK for Python, which records an exposure for each."""

import json
import os
import sys

from flagsmith import Flagsmith
from flagsmith.analytics import EventProcessorConfig

plan = json.loads(sys.stdin.readline())
flagsmith = Flagsmith(
    environment_key=plan["key"],
    api_url=os.environ["FLAGSMITH_API_URL"],
    enable_events=True,
    event_processor_config=EventProcessorConfig(events_api_url=plan["events"]),
)
answers = {}
for identifier in plan["identifiers"]:
    for name in plan["flags"]:
        flag = flagsmith.get_experiment_flag(name, identifier)
        answers.setdefault(identifier, {})[name] = flag.value
flagsmith._event_processor.flush()
print("answers " + json.dumps(answers), flush=True)
# The test sends a line when the events have arrived.
sys.stdin.readline()
