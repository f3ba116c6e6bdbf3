"""Reads flags through Flagsmith's SDK for Python, in remote evaluation. Reads one line of JSON, and prints one."""

import json
import os
import sys

from flagsmith import Flagsmith
from flagsmith.exceptions import FlagsmithAPIError, FlagsmithFeatureDoesNotExistError
from flagsmith.models import DefaultFlag

plan = json.loads(sys.stdin.readline())
api_url = os.environ["FLAGSMITH_API_URL"]


def client(**options):
    options = {"environment_key": plan["key"], "api_url": api_url, **options}
    return Flagsmith(**options)


def in_default(name):
    return DefaultFlag(enabled=False, value=f"default of {name}")


def pairs(flags):
    return {flag.feature_name: [flag.enabled, flag.value] for flag in flags.all_flags()}


def failure(ask):
    try:
        ask()
    except (FlagsmithAPIError, FlagsmithFeatureDoesNotExistError) as error:
        return type(error).__name__
    return None


def failing(**options):
    """Returns what an application gets if no flags can be fetched: with a default handler, and without one."""
    handled = client(default_flag_handler=in_default, **options)
    bare = client(**options)
    flag = handled.get_environment_flags().get_flag("max_items")
    identity = handled.get_identity_flags("guest-10").get_flag("max_items")
    return {
        "environment": [flag.enabled, flag.value, flag.is_default],
        "identity": [identity.enabled, identity.value, identity.is_default],
        "environment_without": failure(bare.get_environment_flags),
        "identity_without": failure(lambda: bare.get_identity_flags("guest-10")),
    }


def traits(subject):
    given = subject.get("traits", {})
    if subject.get("transient"):
        return {name: {"value": value, "transient": True} for name, value in given.items()}
    return given


flagsmith = client(application_metadata={"name": "harbour", "version": "1.0"})
environment = flagsmith.get_environment_flags()
one = environment.get_flag("max_items")

counted = client(enable_analytics=True)
counted_flags = counted.get_identity_flags("guest-2")
counted_value = [counted_flags.is_feature_enabled("search_ranking"), counted_flags.get_feature_value("search_ranking")]
# This program does not wait for the request, but the interpreter does before it ends.
counted._analytics_processor.flush()

unknown = client(default_flag_handler=in_default).get_environment_flags().get_flag("unheard_of")

answers = {
    "environment": pairs(environment),
    "one": [one.feature_id, one.feature_name, one.enabled, one.value, one.is_default],
    "enabled": environment.is_feature_enabled("dark_mode"),
    "value": environment.get_feature_value("surge_pricing"),
    "identities": {
        name: pairs(
            flagsmith.get_identity_flags(
                subject["identifier"], traits(subject), transient=subject.get("transient", False)
            )
        )
        for name, subject in plan["subjects"].items()
    },
    "anonymous": pairs(flagsmith.get_identity_flags("", plan["anonymous"]["traits"], transient=True)),
    "anonymous_nobody": pairs(flagsmith.get_identity_flags("", transient=True)),
    "unknown": [unknown.enabled, unknown.value, unknown.is_default],
    "unknown_without": failure(lambda: environment.get_flag("unheard_of")),
    "wrong_key": failing(environment_key="harbour-client-key-of-another"),
    "server_down": failing(api_url=plan["nobody"] + "/api/v1/"),
    "analytics": counted_value,
}
print("answers " + json.dumps(answers), flush=True)
