"""A real browser for pages, and what a person does in it."""

import json
import shutil
import urllib.request

import pytest
from conftest import MANAGEMENT_KEY
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

PATIENCE = 30


def start_browser(script):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(argument)
    if not script:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(PATIENCE)
    return driver


@pytest.fixture
def plain_browser():
    """Without scripts: the page must not need any."""
    driver = start_browser(script=False)
    yield driver
    driver.quit()


@pytest.fixture
def browser():
    driver = start_browser(script=True)
    yield driver
    driver.quit()


def call(gateway, path, body=None, key=None, method=None):
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(gateway.url + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def sign_in(driver, key=MANAGEMENT_KEY):
    driver.find_element(By.ID, "key").send_keys(key, Keys.ENTER)


def press(driver, text):
    driver.find_element(By.XPATH, f"//button[normalize-space()='{text}']").click()


def heading(driver):
    return driver.find_element(By.TAG_NAME, "h1").text


def wait_for(driver, condition):
    """Pages come and go meanwhile: an element that has just gone is one that is not there yet. The driver tells of some of
    them as errors of its own."""
    gone = (WebDriverException,)
    return WebDriverWait(driver, PATIENCE, poll_frequency=0.05, ignored_exceptions=gone).until(condition)


def wait_for_heading(driver, text):
    wait_for(driver, lambda driver: text in heading(driver))


def wait_for_problem(driver, text):
    wait_for(driver, lambda driver: text in driver.find_element(By.CLASS_NAME, "problem").text)
