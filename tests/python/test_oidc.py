"""Signing in with an issuer that others wrote, in a real browser."""

import oidc_provider_mock
import pytest
from browser import (
    plain_browser,  # noqa: F401 (fixture)
    press,
    wait_for,
    wait_for_heading,
)
from conftest import start_gateway
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PEOPLE = [
    oidc_provider_mock.User(
        sub="ada",
        claims={
            "email": "ada@example.com",
            "email_verified": True,
            "given_name": "Ada",
            "family_name": "Lovelace",
        },
    ),
    oidc_provider_mock.User(sub="eve", claims={"email": "eve@example.com", "email_verified": False}),
]


@pytest.fixture(scope="module")
def issuer():
    with oidc_provider_mock.run_server_in_thread(user_claims=PEOPLE, require_nonce=True) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture(scope="module")
def gateway(upstream, issuer, tmp_path_factory):
    settings = f"""[oidc]
issuer = "{issuer}"
client_id = "tidegate"
client_secret = "told-to-the-issuer"
name = "the company login"
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("oidc"), settings)
    process.command("members", "add", "--email", "ada@example.com", "--role", "admin")
    yield process
    process.stop()


def through(driver, gateway, path, name):
    driver.get(gateway.url + path)
    driver.find_element(By.LINK_TEXT, "Sign in with the company login").click()
    wait_for_heading(driver, "Authorize Client")
    press(driver, name)


def test_a_member_signs_in_with_the_company_login(gateway, plain_browser):
    driver = plain_browser
    through(driver, gateway, "/dashboard/members", "ada")
    wait_for_heading(driver, "Members")
    assert "you" in driver.find_element(By.XPATH, "//tr[contains(., 'ada@example.com')]").text
    driver.find_element(By.CSS_SELECTOR, "summary").click()
    driver.find_element(By.ID, "email").send_keys("bob@example.com", Keys.ENTER)
    wait_for(driver, lambda driver: "member now" in driver.find_element(By.CLASS_NAME, "said").text)
    assert "bob@example.com" in gateway.command("members", "list")
    press(driver, "Sign out")
    wait_for_heading(driver, "Sign in")
    driver.back()
    driver.refresh()
    wait_for_heading(driver, "Sign in")


def test_an_application_is_authorized_after_it(gateway, plain_browser):
    driver = plain_browser
    through(driver, gateway, "/auth?callback_url=https%3A%2F%2Fapp.example%2Fcb&key_label=laptop", "ada")
    wait_for_heading(driver, "Authorize app.example")
    assert driver.find_element(By.NAME, "key_label").get_attribute("value") == "laptop"
    assert "ada@example.com" in driver.find_element(By.TAG_NAME, "body").text


def test_whom_the_issuer_does_not_vouch_for_stays_out(gateway, plain_browser):
    driver = plain_browser
    through(driver, gateway, "/dashboard", "eve")
    wait_for_heading(driver, "You are not signed in")
    assert "oidc.trust_email" in driver.find_element(By.TAG_NAME, "body").text
