"""The authorization page in a real browser: from the link an application shows to a message with the key it got."""

import base64
import hashlib
import http.server
import queue
import re
import secrets
import threading
import urllib.parse

import pytest
from browser import (
    PATIENCE,
    browser,  # noqa: F401 (fixture)
    call,
    heading,
    plain_browser,  # noqa: F401 (fixture)
    press,
    sign_in,
    wait_for_heading,
    wait_for_problem,
)
from conftest import INFERENCE_KEY, MANAGEMENT_KEY
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


@pytest.fixture
def application():
    """A program that listens on loopback for its code, as command-line tools do."""
    arrived = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/cb"):
                arrived.put((self.path, dict(self.headers)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"You can close this page.")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.arrived = arrived
    yield server
    server.shutdown()


def callback(application):
    return f"http://127.0.0.1:{application.server_address[1]}/cb?keep=a%20b"


def proof():
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    return verifier, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def link(gateway, **parameters):
    return f"{gateway.url}/auth?{urllib.parse.urlencode(parameters)}"


def arrived(application):
    path, headers = application.arrived.get(timeout=PATIENCE)
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
    return {name: values[0] for name, values in query.items()}, headers


def test_from_the_link_to_a_message(gateway, plain_browser, application):
    driver = plain_browser
    verifier, challenge = proof()
    driver.get(
        link(
            gateway,
            callback_url=callback(application),
            code_challenge=challenge,
            code_challenge_method="S256",
            state="st&te=1",
            limit="5",
            usage_limit_type="daily",
            key_label="Browser <b>key</b>",
            expires_at="2099-01-31T10:30:00Z",
        )
    )
    assert heading(driver) == "Sign in"
    sign_in(driver, "not a key")
    wait_for_problem(driver, "not a key of this gateway")
    sign_in(driver, INFERENCE_KEY)
    wait_for_problem(driver, "inference key")
    sign_in(driver)
    wait_for_heading(driver, "Authorize 127.0.0.1:")
    origin = f"http://127.0.0.1:{application.server_address[1]}"
    assert driver.find_element(By.CLASS_NAME, "origin").text == origin
    assert "your own computer" in driver.find_element(By.CLASS_NAME, "warning").text
    value = lambda name: driver.find_element(By.ID, name).get_attribute("value")
    assert value("key_label") == "Browser <b>key</b>"
    assert (value("limit"), value("usage_limit_type"), value("expires_at")[:16]) == ("5", "daily", "2099-01-31T10:30")

    # What was proposed can be changed; a mistake is told and nothing is lost.
    limit = driver.find_element(By.ID, "limit")
    limit.clear()
    limit.send_keys("many")
    press(driver, "Authorize")
    wait_for_problem(driver, "limit")
    assert (value("limit"), value("key_label")) == ("many", "Browser <b>key</b>")
    limit = driver.find_element(By.ID, "limit")
    limit.clear()
    limit.send_keys("7.5")
    press(driver, "Authorize")

    query, headers = arrived(application)
    assert (query["keep"], query["state"]) == ("a b", "st&te=1")
    assert "Referer" not in headers
    assert "Cookie" not in headers, "cookies ignore ports, so the session must not be one for this path"
    answer = call(gateway, "/api/v1/auth/keys", {"code": query["code"], "code_verifier": verifier})
    message = {"model": "test/sim", "max_tokens": 32, "messages": [{"role": "user", "content": "hi"}]}
    assert call(gateway, "/v1/messages", message, answer["key"])["type"] == "message"
    keys = call(gateway, "/api/v1/keys", key=MANAGEMENT_KEY)["data"]
    made = next(key for key in keys if key["name"] == "Browser <b>key</b>")
    assert (made["limit"], made["limit_reset"]) == (7.5, "daily")
    assert made["expires_at"] == "2099-01-31T10:30:00.000Z"


def test_cancelling_makes_nothing(gateway, plain_browser, application):
    driver = plain_browser
    before = len(call(gateway, "/api/v1/keys", key=MANAGEMENT_KEY)["data"])
    driver.get(link(gateway, callback_url=callback(application), state="s"))
    sign_in(driver)
    wait_for_heading(driver, "Authorize")
    press(driver, "Cancel")
    query, _ = arrived(application)
    assert query == {"keep": "a b", "error": "access_denied", "state": "s"}
    assert len(call(gateway, "/api/v1/keys", key=MANAGEMENT_KEY)["data"]) == before


def test_without_a_callback_the_code_is_shown(gateway, browser):
    verifier, challenge = proof()
    browser.get(link(gateway, code_challenge=challenge, code_challenge_method="S256", key_label="server without a screen"))
    sign_in(browser)
    wait_for_heading(browser, "server without a screen")
    press(browser, "Authorize")
    wait_for_heading(browser, "Your code")
    code = browser.find_element(By.ID, "code").get_attribute("value")
    assert re.fullmatch(r"auth_code_[0-9A-Za-z]{43}", code)
    assert "10 minutes" in browser.find_element(By.TAG_NAME, "main").text
    assert browser.find_element(By.ID, "copy").is_displayed(), "where there are scripts there is a button"
    answer = call(gateway, "/api/v1/auth/keys", {"code": code, "code_verifier": verifier})
    assert answer["key"].startswith("sk-tg-v1-")
    browser.refresh()
    assert not browser.find_elements(By.ID, "code") or browser.find_element(By.ID, "code").get_attribute("value") != code


def test_the_keyboard_is_enough(gateway, plain_browser, application):
    driver = plain_browser
    driver.get(link(gateway, callback_url=callback(application)))
    driver.switch_to.active_element.send_keys(MANAGEMENT_KEY, Keys.ENTER)
    wait_for_heading(driver, "Authorize")

    def tab():
        # To whatever has the focus: sent to a field of several stops, a key would begin at its first one again.
        ActionChains(driver).send_keys(Keys.TAB).perform()

    tab()
    order = []
    for _ in range(40):
        focused = driver.switch_to.active_element
        order.append(focused.get_attribute("id") or focused.text)
        if focused.text == "Authorize":
            break
        tab()
    # A field for date and time has several stops of its own.
    seen = [name for place, name in enumerate(order) if name not in order[:place]]
    assert seen == ["key_label", "workspace_id", "limit", "usage_limit_type", "expires_at", "Authorize"]
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert "code" in arrived(application)[0]


def luminance(color):
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", color)[:3])
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(gateway, browser, application, scheme):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get(link(gateway, callback_url=callback(application)))
    sign_in(browser)
    wait_for_heading(browser, "Authorize")
    style = lambda selector, name: browser.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)
    card = style(".card", "background-color")
    assert (luminance(card) > 0.5) == (scheme == "light")
    for selector in ("h1", ".hint", ".brand", "label"):
        assert contrast(style(selector, "color"), card) >= 4.5, selector
    for selector in ("button.primary", ".warning"):
        assert contrast(style(selector, "color"), style(selector, "background-color")) >= 4.5, selector


def test_a_form_of_another_site_is_not_accepted(gateway, browser, application):
    browser.get(link(gateway, callback_url=callback(application)))
    sign_in(browser)
    wait_for_heading(browser, "Authorize")
    page = f"""<form method=post action="{gateway.url}/auth/authorize">
        <input name=callback_url value="{callback(application)}">
        <input name=decision value=authorize><input name=csrf value=guess><button id=go>go</button></form>"""
    browser.get("data:text/html," + urllib.parse.quote(page))
    browser.find_element(By.ID, "go").click()
    # The browser does not even send the cookie along.
    wait_for_heading(browser, "Sign in")
    browser.get(link(gateway, callback_url=callback(application)))
    wait_for_heading(browser, "Authorize")
    browser.execute_script("document.querySelector('input[name=csrf]').value = 'guess'")
    press(browser, "Authorize")
    wait_for_heading(browser, "Not accepted")
    assert application.arrived.empty()


def test_a_hostile_link_is_shown_as_such_and_leads_nowhere(gateway, plain_browser):
    for bad in ("http://evil.example/cb", "javascript:alert(1)", "https://user@evil.example/", "https://evil.example/#x"):
        plain_browser.get(link(gateway, callback_url=bad))
        assert heading(plain_browser) == "This request cannot be authorized"
        assert plain_browser.current_url.startswith(gateway.url)
