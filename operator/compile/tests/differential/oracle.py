"""Answers with Flagsmith's own engine, a line of JSON for a line of JSON, until standard input ends.

A request is {"document", "identities": [{"identifier", "traits"}]}. The answer has, for each identity, what the engine
makes of each flag and the bodies of both kinds of key; and the bodies without an identity for each way of making them.

The engine and the SDK's mappers run as they are installed, except for what Remora does otherwise on purpose; each of
those places is marked DELIBERATE.

Python's regular expressions have no limit of work. So a document gets no answer if one of its conditions takes more than
CONDITION_SECONDS of processor time.
"""

import json
import signal
import sys
import warnings

from flag_engine.engine import get_evaluation_result
from flag_engine.segments import evaluator
from flagsmith.mappers import _map_environment_document_feature_states_to_feature_contexts as map_feature_states
from flagsmith.mappers import map_context_and_identity_data_to_context, map_environment_document_to_context

warnings.simplefilter("ignore")

CONDITION_SECONDS = 2

IDENTITY_FREE = ("$.environment.", "$.environment[", "$.flags.", "$.flags[")

_matches_condition = evaluator.context_matches_condition


class GaveUp(BaseException):
    """A condition took too long. No handler of the engine catches it."""


def give_up(number, frame):
    raise GaveUp


signal.signal(signal.SIGVTALRM, give_up)


def matches_condition(context, condition, segment_key):
    segment = context["segments"][segment_key]
    if segment["metadata"].get("source") == "identity_overrides":
        # DELIBERATE: an identity override applies to exactly its identifier, as in Flagsmith's API. The engine reads
        # "007" as 7, and uses a trait named $.identity.identifier as the identifier.
        return context.get("identity", {}).get("identifier") in condition["value"]
    signal.setitimer(signal.ITIMER_VIRTUAL, CONDITION_SECONDS)
    try:
        return _matches_condition(context=context, condition=condition, segment_key=segment_key)
    except GaveUp:
        raise GaveUp(json.dumps(condition)) from None
    except Exception:
        # DELIBERATE: a condition that makes the engine raise is false. The engine gives no answer at all.
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


evaluator.context_matches_condition = matches_condition


def contexts_of(document):
    for segment in document["project"]["segments"]:
        for state in segment.get("feature_states") or []:
            # DELIBERATE: a priority of null counts as no priority. The engine raises when it compares null.
            if (state.get("feature_segment") or {}).get("priority", 0) is None:
                del state["feature_segment"]
    # DELIBERATE: of two overrides with equal priority, the one that was created last wins, as in Flagsmith's API. In
    # the engine, the first one in the document wins.
    ranked = {}
    for segment in document["project"]["segments"]:
        for state in segment.get("feature_states") or []:
            if "priority" in (state.get("feature_segment") or {}):
                ranked.setdefault(state["feature"]["name"], []).append(state)
    for states in ranked.values():
        none = float("-inf")
        created = lambda state: none if state.get("django_id") is None else state["django_id"]
        states.sort(key=lambda state: (float(state["feature_segment"]["priority"]), -created(state)))
        for rank, state in enumerate(states):
            state["feature_segment"] = {**state["feature_segment"], "priority": rank}
    # DELIBERATE: overrides of several identities are equal if their values are equal. For the mapper, 1, 1.0 and true
    # are one value, and the value of the first identity applies to all of them; -1 and -2 have one hash, and the last
    # one applies to both.
    # DELIBERATE: identity overrides keep their variants, as in Flagsmith's API. The mapper drops them.
    for identity in document.get("identity_overrides") or []:
        for state in identity["identity_features"]:
            content = {"value": state["feature_state_value"]}
            if state.get("multivariate_feature_state_values"):
                (own,) = map_feature_states([state])
                variants = sorted(own["variants"], key=lambda variant: variant["priority"])
                content.update(key=own["key"], variants=variants)
            state["feature_state_value"] = json.dumps(content)
    context = map_environment_document_to_context(document)
    for segment in context["segments"].values():
        if segment["metadata"].get("source") == "identity_overrides":
            for override in segment["overrides"]:
                override.update(json.loads(override["value"]))
    return context


def conditions(rules):
    for rule in rules:
        yield from rule["conditions"]
        yield from conditions(rule["rules"])


def identity_free(context):
    def is_free(segment):
        if segment["metadata"].get("source") == "identity_overrides":
            return False
        return all(condition["property"].startswith(IDENTITY_FREE) for condition in conditions(segment["rules"]))

    # A segment without rules matches no identity, but it counts as one that targets its features.
    segments = {key: segment if is_free(segment) else {**segment, "rules": []} for key, segment in context["segments"].items()}
    return {**context, "segments": segments}


def dumps(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def bodies(document, flags):
    """The arrays of flags that a client key and a server key get."""
    hide = document.get("hide_disabled_flags")
    if hide is None:
        hide = document["project"].get("hide_disabled_flags")
    server_only = document["project"].get("server_key_only_feature_ids") or []
    features = {state["feature"]["name"]: state["feature"] for state in document["feature_states"]}
    rows = []
    for name, feature in features.items():
        flag = flags[name]
        if not hide or flag["enabled"]:
            shown = {"id": feature["id"], "name": name, "type": feature.get("type", "STANDARD")}
            row = {"feature": shown, "enabled": flag["enabled"], "feature_state_value": flag["value"]}
            rows.append((feature["id"] in server_only, dumps(row)))
    client = [row for is_server_only, row in rows if not is_server_only]
    return ["[%s]" % ",".join(client), "[%s]" % ",".join(row for _, row in rows)]


def evaluated(document, context):
    flags = get_evaluation_result(context)["flags"]
    told = [
        [name, flag["enabled"], dumps(flag["value"]), flag["reason"], dumps(flag["variant"])]
        for name, flag in flags.items()
    ]
    return {"flags": told, "bodies": bodies(document, flags)}


def answer(request):
    document = request["document"]
    context = contexts_of(document)
    identities = [
        evaluated(document, map_context_and_identity_data_to_context(context, identity["identifier"], identity["traits"]))
        for identity in request["identities"]
    ]
    plain = {name: {"enabled": feature["enabled"], "value": feature["value"]} for name, feature in context["features"].items()}
    return {
        "identities": identities,
        "plain": bodies(document, plain),
        "identity_free": evaluated(document, identity_free(context))["bodies"],
        "all": evaluated(document, context)["bodies"],
    }


for line in sys.stdin.buffer:
    try:
        reply = {"answer": answer(json.loads(line))}
    except GaveUp as gave_up:
        reply = {"gave_up": str(gave_up)}
    except Exception as error:
        reply = {"raised": repr(error)}
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
    sys.stdout.buffer.flush()
