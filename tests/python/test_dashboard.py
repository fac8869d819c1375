"""The dashboard in a real browser: from signing in to the story of a request that the playground made."""

from browser import (
    browser,  # noqa: F401 (fixture)
    call,
    plain_browser,  # noqa: F401 (fixture)
    press,
    sign_in,
    wait_for,
    wait_for_heading,
    wait_for_problem,
)
from conftest import INFERENCE_KEY, MANAGEMENT_KEY
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PAGES = ["Overview", "Requests", "Keys", "Budgets", "Provider keys", "Models", "Destinations", "Members", "Playground"]


def open_board(driver, gateway, path=""):
    driver.get(f"{gateway.url}/dashboard{path}")
    wait_for_heading(driver, "Sign in")
    sign_in(driver)


def complaints(driver, refused):
    """What the browser found wrong, but for what was refused on purpose."""
    severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    return [message for message in severe if refused not in message]


def ask(gateway, key=INFERENCE_KEY):
    message = {"model": "test/sim", "max_tokens": 32, "messages": [{"role": "user", "content": "hi"}]}
    return call(gateway, "/v1/messages", message, key)


def test_every_page_is_reached_without_scripts(gateway, plain_browser):
    driver = plain_browser
    ask(gateway)
    driver.get(f"{gateway.url}/dashboard/models")
    sign_in(driver, INFERENCE_KEY)
    wait_for_problem(driver, "inference key")
    sign_in(driver)
    wait_for_heading(driver, "Models")
    for page in PAGES:
        driver.find_element(By.LINK_TEXT, page).click()
        wait_for_heading(driver, page)
        current = driver.find_element(By.CSS_SELECTOR, "nav a[aria-current=page]")
        assert current.text == page
    assert not complaints(driver, "/dashboard/sign-in")
    press(driver, "Sign out")
    wait_for_heading(driver, "Sign in")
    driver.back()
    driver.refresh()
    wait_for_heading(driver, "Sign in")


def test_a_key_is_made_used_and_switched_off(gateway, plain_browser):
    driver = plain_browser
    open_board(driver, gateway, "/keys")
    wait_for_heading(driver, "Keys")
    driver.find_element(By.CSS_SELECTOR, "summary").click()
    driver.find_element(By.ID, "name").send_keys("From <i>the</i> board")
    driver.find_element(By.ID, "limit").send_keys("1.5", Keys.ENTER)
    made = wait_for(driver, lambda driver: driver.find_element(By.ID, "code").get_attribute("value"))
    assert ask(gateway, made)["type"] == "message"
    listed = next(key for key in call(gateway, "/api/v1/keys", key=MANAGEMENT_KEY)["data"] if key["limit"] == 1.5)
    assert listed["name"] == "From <i>the</i> board"
    row = driver.find_element(By.XPATH, "//tr[contains(., 'From <i>the</i> board')]")
    row.find_element(By.XPATH, ".//button[normalize-space()='Switch off']").click()
    wait_for(driver, lambda driver: "switched off" in driver.find_element(By.CLASS_NAME, "said").text)
    keys = call(gateway, "/api/v1/keys?include_disabled=true", key=MANAGEMENT_KEY)["data"]
    assert next(key for key in keys if key["hash"] == listed["hash"])["disabled"] is True


def test_enter_does_what_stands_beside_the_field(gateway, plain_browser):
    driver = plain_browser
    first = {"provider": "anthropic", "key": "sk-ant-api03-first-secret-0123456789"}
    stored = call(gateway, "/api/v1/byok", first, MANAGEMENT_KEY)["data"]
    open_board(driver, gateway, "/byok")
    wait_for_heading(driver, "Provider keys")
    row = driver.find_element(By.XPATH, "//tr[contains(., 'anthropic')]")
    row.find_element(By.TAG_NAME, "summary").click()
    row.find_element(By.CSS_SELECTOR, "input[name=key]").send_keys("sk-ant-api03-second-secret-9876543210", Keys.ENTER)
    wait_for(driver, lambda driver: "new key is used" in driver.find_element(By.CLASS_NAME, "said").text)
    rotated = call(gateway, f"/api/v1/byok/{stored['id']}", key=MANAGEMENT_KEY)["data"]
    assert (rotated["disabled"], rotated["label"] != stored["label"]) == (False, True)


def test_what_is_not_changed_of_a_limit_stays(gateway, plain_browser):
    driver = plain_browser
    made = {"name": "kept limit", "limit": 2.5, "limit_reset": "daily"}
    hash = call(gateway, "/api/v1/keys", made, MANAGEMENT_KEY)["data"]["hash"]
    open_board(driver, gateway, "/keys")
    wait_for_heading(driver, "Keys")
    row = driver.find_element(By.XPATH, "//tr[contains(., 'kept limit')]")
    row.find_element(By.TAG_NAME, "summary").click()
    row.find_element(By.XPATH, ".//option[.='weekly']").click()
    row.find_element(By.XPATH, ".//button[normalize-space()='Set the limit']").click()
    wait_for(driver, lambda driver: "limit is changed" in driver.find_element(By.CLASS_NAME, "said").text)
    key = call(gateway, f"/api/v1/keys/{hash}", key=MANAGEMENT_KEY)["data"]
    assert (key["limit"], key["limit_reset"]) == (2.5, "weekly")


def test_the_playground_streams_and_its_request_has_a_story(gateway, browser):
    driver = browser
    open_board(driver, gateway, "/playground")
    wait_for_heading(driver, "Playground")
    driver.find_element(By.ID, "key").send_keys("not a key")
    model = driver.find_element(By.ID, "model")
    model.clear()
    model.send_keys("test/sim")
    driver.find_element(By.ID, "message").send_keys("What is a tide?")
    press(driver, "Send")
    wait_for(driver, lambda driver: driver.find_element(By.ID, "told").text not in ("", "…"))
    assert driver.find_element(By.ID, "message").get_attribute("value") == "What is a tide?", "it can be asked again"
    key = driver.find_element(By.ID, "key")
    key.clear()
    key.send_keys(INFERENCE_KEY)
    press(driver, "Send")
    link = wait_for(driver, lambda driver: driver.find_element(By.LINK_TEXT, "Its story"))
    assert driver.find_element(By.CSS_SELECTOR, "#talk .assistant").text
    assert "tokens in" in driver.find_element(By.ID, "told").text
    link.click()
    wait_for_heading(driver, "Request gen-")
    assert "Answered with status 200" in driver.find_element(By.CLASS_NAME, "summary").text
    driver.find_element(By.LINK_TEXT, "All requests").click()
    wait_for_heading(driver, "Requests")
    newest = lambda driver: driver.find_element(By.CSS_SELECTOR, "tbody a").get_attribute("href")
    before = newest(driver)
    driver.find_element(By.ID, "live").click()
    ask(gateway)
    wait_for(driver, lambda driver: newest(driver) != before)
    assert not complaints(driver, "/v1/messages")


def test_the_keyboard_is_enough(gateway, browser):
    driver = browser
    driver.get(f"{gateway.url}/dashboard")
    driver.switch_to.active_element.send_keys(MANAGEMENT_KEY, Keys.ENTER)
    wait_for_heading(driver, "Overview")
    ActionChains(driver).send_keys(Keys.TAB).perform()
    assert driver.switch_to.active_element.text == "Skip to the content"
    for _ in PAGES[:2]:
        ActionChains(driver).send_keys(Keys.TAB).perform()
    assert driver.switch_to.active_element.text == "Requests"
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for_heading(driver, "Requests")
