"""What the gateway tells Prometheus, by Prometheus' own tool, and the dashboard that is made of it."""

import json
import pathlib
import re
import subprocess
import time
import urllib.request

import anthropic
import pytest
from conftest import INFERENCE_KEY, MANAGEMENT_KEY, start_gateway

GRAFANA = pathlib.Path(__file__).parents[2] / "deploy" / "grafana"
# Words of the query language that look like names of metrics.
WORDS = {"sum", "rate", "increase", "by", "le", "histogram_quantile", "max", "min", "avg", "clamp_min", "on", "without", "time", "or", "and", "unless"}


@pytest.fixture(scope="module")
def measured(upstream, tmp_path_factory):
    """The metrics of a gateway that has served, failed and refused."""
    process = start_gateway(upstream, tmp_path_factory.mktemp("measured"), "[limits]\nkey_rpm = 4\n")
    client = anthropic.Anthropic(base_url=process.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)
    request = {"max_tokens": 64, "messages": [{"role": "user", "content": "hello"}]}
    client.messages.create(model="test/sim", **request)
    tools = {"tools": [{"type": "tidegate:datetime"}], "extra_body": {"max_tool_calls": 1}}
    client.messages.create(model="test/sim-tools", **tools, **request)
    list(client.messages.create(model="test/sim", stream=True, **request))
    refused = ("test/sim-status-500", INFERENCE_KEY), ("test/sim", "sk-tg-v1-wrong"), ("test/sim", INFERENCE_KEY)
    for model, key in refused:
        with pytest.raises(anthropic.APIStatusError):
            client.with_options(api_key=key).messages.create(model=model, **request)
    # Finished calls are counted a little after their answers: five of them, since the one with the tool takes two turns.
    for _ in range(200):
        text = scrape(process)
        if sum(int(count) for count in re.findall(r"^tidegate_generations_total\{.*\} (\d+)$", text, re.M)) >= 5:
            break
        time.sleep(0.05)
    process.stop()
    return text


def scrape(process):
    asked = urllib.request.Request(process.url + "/metrics", headers={"authorization": f"Bearer {MANAGEMENT_KEY}"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.read().decode()


def test_all_that_can_run_out_is_shown_from_the_first_moment_on(upstream, tmp_path):
    process = start_gateway(upstream, tmp_path)
    text = scrape(process)
    process.stop()
    shown = re.findall(r'^tidegate_overload_used_ratio\{resource="([a-z]+)"\}', text, re.M)
    assert sorted(shown) == ["descriptors", "ledger", "loop", "memory", "store"]


def families(text):
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))


def names(text):
    """Every name that a query can use."""
    found = set()
    for family, kind in families(text).items():
        found |= {family, family + "_total"} if kind == "counter" else {family}
        if kind == "histogram":
            found |= {family + end for end in ("_bucket", "_sum", "_count")}
    return found


def test_prometheus_takes_what_we_say(measured):
    checked = subprocess.run(["promtool", "check", "metrics"], input=measured, text=True, capture_output=True, timeout=30)
    # It lints, too: names without units it knows are no mistakes.
    problems = [line for line in (checked.stdout + checked.stderr).splitlines() if "error while linting" in line]
    assert not problems, checked.stderr
    assert "server_tool_calls" in measured and 'tool="datetime"' in measured
    assert INFERENCE_KEY not in measured and "sk-tg" not in measured


def queries(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def used(query):
    """The metrics that a query names: neither words of the language nor labels."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)|\"[^\"]*\"", "", query)
    return {word for word in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare) if word not in WORDS}


def test_the_dashboard_asks_for_what_there_is(measured):
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    known = names(measured)
    asked = list(queries(dashboard))
    assert len(asked) >= 10
    for title, query in asked:
        assert used(query) and used(query) <= known, f"{title}: {used(query) - known}"


def test_the_alerts_are_valid_and_ask_for_what_there_is(measured):
    path = GRAFANA / "alerts.yml"
    checked = subprocess.run(["promtool", "check", "rules", str(path)], text=True, capture_output=True, timeout=30)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    known = names(measured)
    expressions = re.findall(r"^ +expr: (.+)$", path.read_text(), re.M)
    assert len(expressions) >= 5
    for expression in expressions:
        assert used(expression) and used(expression) <= known, f"{expression}: {used(expression) - known}"


def test_the_page_about_metrics_names_what_there_is(measured):
    root = GRAFANA.parents[1]
    page = (root / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"`(tidegate_[a-z_]+)`", page))
    assert len(named) >= 35
    # What nothing has happened to is not shown, so the names are looked for where they are registered.
    sources = [root / "crates/observe/src/metrics.rs", root / "crates/observe/src/metrics/flow.rs"]
    registered = {name for source in sources for name in re.findall(r'"([a-z_]+)"', source.read_text())}
    bare = {re.sub(r"(_total|_seconds)$", "", name).removeprefix("tidegate_") for name in named}
    assert bare <= registered, bare - registered
    told = {name.removesuffix("_total") for name in named}
    # Written short in the page: `_late_total` after the name of its neighbour.
    short = {end.removesuffix("_total") for end in re.findall(r"`(_[a-z_]+)`", page)}
    untold = {name for name in families(measured) if name not in told and not any(name.endswith(end) for end in short)}
    assert not untold, untold
