"""The status page in Chromium: each state in both themes, at the width of a desk and of a phone; actions; the login.

MAYFLYDB_SCREENSHOTS names a folder for pictures of each state.
"""

import json
import os
import subprocess
import threading
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright
from pymongo.errors import OperationFailure

from postgres import Postgres
from test_backup import server, succeeds, until
from test_backup_disk_full import disk

WIDTHS, THEMES = (1360, 390), ("light", "dark")
HOSTILE = "<script>document.title='bad'</script>\n\"quoted\""
PICTURES = os.environ.get("MAYFLYDB_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        path = os.environ.get("MAYFLYDB_CHROMIUM", "/usr/bin/chromium")
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


def address(one):
    lines = [json.loads(line) for line in one.log.read_text().splitlines()]
    return next(line["attr"]["address"] for line in lines if line["msg"].startswith("the status page"))


def url(one, path=""):
    return f"http://{address(one)}/{path}"


class Page:
    """A page of the browser, which collects errors."""

    def __init__(self, browser, width=1360, theme="light", **further):
        self.errors = []
        self.width = width
        # Colours are compared at once, not in the middle of a transition.
        look = {"color_scheme": theme, "reduced_motion": "reduce", **further}
        self.page = browser.new_page(viewport={"width": width, "height": 900}, **look)
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()

    def open(self, where):
        self.page.goto(where)
        # The last panel to be read; then the sentence and all others are there.
        expect(self.page.locator("#collections .body")).not_to_be_empty(timeout=20_000)
        return self.page

    def check(self, name=None):
        assert self.errors == []
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= self.width, f"{wide} px wide"
        # On a phone there is one column.
        narrowest = self.page.locator(".plot").evaluate_all("all => Math.min(...all.map((one) => one.clientWidth || 1e9))")
        assert narrowest > 300, f"a plot has {narrowest} px"
        found = Axe().run(self.page)
        assert found.violations_count == 0, found.generate_report()
        if PICTURES and name:
            self.page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)


def in_all_forms(browser, where, name, look, prepare=lambda page: None):
    for width in WIDTHS:
        for theme in THEMES:
            with Page(browser, width, theme) as one:
                prepare(one.page)
                look(one.open(where))
                one.check(f"{name}-{width}-{theme}")


def expire(client, namespace, count, age_secs, after_secs, **ttl):
    db, name = namespace.split(".", 1)
    at = datetime.now(timezone.utc) - timedelta(seconds=age_secs)
    client[db][name].insert_many({"at": at, "n": n} for n in range(count))
    index = {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": after_secs}
    client[db].command("createIndexes", name, indexes=[{**index, **({"ttl": ttl} if ttl else {})}])


def sentence(page, text):
    expect(page.locator("#sentence")).to_contain_text(text, timeout=20_000)


def test_an_empty_server(browser, tmp_path):
    with server(tmp_path / "data", "--http", "127.0.0.1:0") as one:
        def look(page):
            sentence(page, "No TTL policies yet: nothing expires.")
            expect(page.locator("#policies .empty")).to_contain_text("expireAfterSeconds")
            expect(page.locator("#backup .body")).to_contain_text("There is no backup.")

        in_all_forms(browser, url(one), "empty", look)


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A server with policies in each state. One is behind, because its pace is too slow."""
    parameters = ("--setParameter", "ttlMonitorSleepSecs=1")
    with server(tmp_path_factory.mktemp("busy") / "data", "--http", "127.0.0.1:0", *parameters) as one:
        client = one.client
        expire(client, "shop.sess", 5000, 4000, 3600, maxDocsPerSec=5)
        expire(client, "shop.carts", 100, 0, 3600)
        expire(client, "mail.tokens", 50, 4000, 3900, paused=True)
        client.odd[HOSTILE].insert_many({"at": "2026-01-01"} for _ in range(100))
        expire(client, "odd." + HOSTILE, 1, -86400, 60)
        client.shop.carts.create_index("n")
        yield one


def test_a_policy_that_is_behind(browser, busy):
    def look(page):
        sentence(page, "shop.sess (at_1) is ")
        sentence(page, " behind, ")
        rows = page.locator("#policies tbody tr")
        expect(rows).to_have_count(4)
        # Sorted by lag. The state is a word.
        expect(rows.nth(0)).to_contain_text("shop.sess")
        expect(rows.nth(0)).to_contain_text("behind")
        expect(rows.nth(1)).to_contain_text("paused")
        assert "<script>" in page.locator("#policies tbody").inner_text()
        assert page.title() != "bad"
        expect(page.locator("#unused tbody")).to_contain_text("n_1")
        # Plots need two samples, which are two seconds apart.
        expect(page.locator("#plots canvas").first).to_be_visible(timeout=15_000)

    in_all_forms(browser, url(busy), "behind", look)


def test_a_slow_query_has_a_suggested_index(browser, busy):
    busy.client.admin.command("profile", 0, slowms=0)
    busy.client.shop.sess.find_one({"n": 4999})
    busy.client.admin.command("profile", 0, slowms=100)
    for width in WIDTHS:
        with Page(browser, width) as one:
            page = one.open(url(busy))
            row = page.locator("#shapes tr", has_text="shop.sess").first
            expect(row).to_contain_text("COLLSCAN")
            expect(row).to_contain_text('{"n":1}')
            one.check(f"shapes-{width}")


def test_plots_are_tables_too(browser, busy):
    with Page(browser) as one:
        page = one.open(url(busy))
        plot = page.locator(".plot").first
        expect(plot.locator("canvas")).to_be_visible(timeout=15_000)
        plot.get_by_role("button").click()
        expect(plot.locator("canvas")).to_be_hidden()
        expect(plot.locator("table")).to_contain_text("query")
        one.check()
        plot.get_by_role("button").click()
        expect(plot.locator("canvas")).to_be_visible()
        for window in ("Day", "Week", "Hour"):
            page.get_by_role("button", name=window, exact=True).click()
            expect(page.get_by_role("button", name=window, exact=True)).to_have_attribute("aria-pressed", "true")
        theme = page.evaluate("document.documentElement.dataset.theme")
        for _ in range(2):
            page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") != theme
        one.check()


def test_a_policy_is_paused_and_continues_by_keyboard(browser, busy):
    ttl = lambda: busy.client.shop.command("listIndexes", "carts")["cursor"]["firstBatch"][1].get("ttl", {})  # noqa: E731
    with Page(browser) as one:
        page = one.open(url(busy))
        for action, is_paused in (("Pause", True), ("Continue", False)):
            page.get_by_role("button", name=f"{action} shop.carts (at_1)").press("Enter")
            expect(page.locator("dialog")).to_be_visible()
            one.check()
            page.locator("#dialog-yes").press("Enter")
            until(lambda: ttl().get("paused", False) == is_paused)
        expect(page.get_by_role("button", name="Pause shop.carts (at_1)")).to_be_visible(timeout=10_000)
        page.get_by_role("button", name="Pause shop.carts (at_1)").press("Enter")
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_be_hidden()
        assert ttl().get("paused", False) is False


def test_a_policy_opens_and_says_what_it_never_deletes(browser, busy):
    for width in WIDTHS:
        with Page(browser, width) as one:
            page = one.open(url(busy))
            page.get_by_role("button", name="odd.<script>").first.press("Enter")
            page.get_by_role("button", name="What does it never delete?").click()
            expect(page.locator(".detail")).to_contain_text("With a string, never deleted")
            expect(page.locator(".detail")).to_contain_text("100")
            one.check(f"detail-{width}")


def test_an_operation_is_ended(browser, busy):
    ended = []

    code = "function() { let end = Date.now() + 60000; while (Date.now() < end) {} return true; }"

    def busy_loop():
        try:
            list(busy.client.shop.carts.find({"$where": code}))
        except Exception as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=busy_loop)
    thread.start()
    with Page(browser) as one:
        page = one.open(url(busy))
        row = page.locator("#operations tr", has_text="shop.carts")
        expect(row).to_be_visible(timeout=10_000)
        one.check("operations")
        row.get_by_role("button").click()
        page.locator("#dialog-yes").click()
        thread.join(timeout=20)
        assert ended and getattr(ended[0], "code", None) == 11601
        assert one.errors == []


def test_expiry_that_is_suspended(browser, tmp_path):
    folder = tmp_path / "backups"
    with server(tmp_path / "data", "--backupFolder", folder) as one:
        expire(one.client, "shop.sess", 50, 4000, 3600, paused=True)
        one.client.admin.command("backup", to=str(folder / "daily"))
    succeeds("restore", "--from", folder / "daily", "--dbpath", tmp_path / "other")
    with server(tmp_path / "other", "--http", "127.0.0.1:0") as one:
        def look(page):
            sentence(page, "Expiry is suspended: the data was restored from a backup. 50 documents are due.")
            expect(page.locator("#policies tbody")).to_contain_text("suspended")
            expect(page.locator("#backup .body")).not_to_be_empty()

        in_all_forms(browser, url(one), "suspended", look)
        with Page(browser) as shown:
            page = shown.open(url(one))
            page.get_by_role("button", name="Resume expiry").click()
            page.locator("#dialog-yes").click()
            sentence(page, "paused")
            shown.check()


def test_search_indexes_are_a_part_of_the_disk(browser, tmp_path):
    with server(tmp_path / "data", "--http", "127.0.0.1:0") as one:
        one.client.shop.notes.insert_many([{"text": f"word{at} of the text"} for at in range(1000)])
        one.client.shop.command({"createSearchIndexes": "notes", "indexes": [{"definition": {"mappings": {"dynamic": True}}}]})
        until(lambda: one.client.admin.command("serverStatus")["search"]["fileBytes"] > 0)
        with Page(browser) as shown:
            page = shown.open(url(one))
            expect(page.locator("#disk tbody tr", has_text="Search indexes")).to_have_count(1)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount file systems")
def test_a_disk_that_is_full(browser, tmp_path):
    with disk(tmp_path / "disk", 400), server(tmp_path / "disk" / "data", "--http", "127.0.0.1:0") as one:
        expire(one.client, "shop.sess", 50, 0, 3600)
        figures = lambda: one.client.admin.command("serverStatus")["diskSpace"]  # noqa: E731
        free = os.statvfs(tmp_path / "disk")
        (tmp_path / "disk" / "other").write_bytes(bytes(free.f_bavail * free.f_frsize - (4 << 20)))
        # The server looks at the disk after every few megabytes.
        with pytest.raises(OperationFailure):
            while True:
                one.client.shop.big.insert_one({"x": bytes(1 << 20)})
        assert figures()["nearlyFull"]

        def look(page):
            sentence(page, "The disk is nearly full: only deletions are accepted.")
            expect(page.locator("#notices")).to_contain_text("Inserts and updates are refused until there is space")
            expect(page.locator("#policies tbody")).to_contain_text("keeps up")
            expect(page.locator("#disk tbody")).to_contain_text("Other programs")

        in_all_forms(browser, url(one), "full", look)
        with Page(browser) as shown:
            page = shown.open(url(one))
            sentence(page, "nearly full")
            (tmp_path / "disk" / "other").unlink()
            # While the disk is full, the server looks at it with each commit.
            until(lambda: one.client.shop.big.delete_many({}) and not figures()["nearlyFull"])
            sentence(page, "1 policy keeps up.")
            expect(page.locator("#notices li")).to_have_count(0)
            shown.check()


def test_a_server_over_postgresql(browser, tmp_path):
    """The page without a disk: the one thing in it that depends on the engine."""
    with Postgres(tmp_path / "postgres.log") as postgres:
        engine = ("--storageEngine", "postgres", "--storageUrl", postgres.database())
        with server(tmp_path / "data", "--http", "127.0.0.1:0", *engine) as one:
            expire(one.client, "shop.sess", 50, 0, 3600)
            with Page(browser) as shown:
                page = shown.open(url(one))
                sentence(page, "1 policy keeps up.")
                expect(page.locator("#policies tbody tr")).to_have_count(1)
                expect(page.locator("#version")).to_contain_text("engine postgres")
                expect(page.locator("#collections tbody")).to_contain_text("shop.sess")
                shown.check("postgres")


def test_a_login_over_tls(browser, tmp_path):
    files = os.environ["MONGODB_TLS_FILES"]
    tls = ("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", f"{files}/server.pem")
    with server(tmp_path / "data", "--http", "127.0.0.1:0", "--auth", *tls) as one:
        with type(one.client)(one.uri, directConnection=True, tlsCAFile=f"{files}/authority.crt") as client:
            client.admin.command("createUser", "root", pwd="pw", roles=["root"])
        with Page(browser, ignore_https_errors=True) as shown:
            page = shown.page
            page.goto(url(one).replace("http:", "https:"))
            page.get_by_label("User", exact=True).fill("root")
            page.get_by_label("Password").fill("pw")
            page.get_by_label("Password").press("Enter")
            sentence(page, "No TTL policies yet")
            (cookie,) = page.context.cookies()
            assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_label("Password")).to_be_visible()
            assert page.context.cookies() == []
            shown.check()
            # The browser shows why the address without encryption does not work.
            page.goto(url(one))
            expect(page.locator("body")).to_contain_text("this server requires encryption: use https://")


def test_a_login_and_a_user_without_rights(browser, tmp_path):
    with server(tmp_path / "data", "--http", "127.0.0.1:0", "--auth") as one:
        one.client.admin.command("createUser", "root", pwd="pw", roles=["root"])
        admin = type(one.client)(one.uri, username="root", password="pw", directConnection=True)
        admin.admin.command("createUser", "none", pwd="pw", roles=[])

        def log_in(page, user, password):
            page.goto(url(one))
            page.get_by_label("User", exact=True).fill(user)
            page.get_by_label("Password").fill(password)
            page.get_by_label("Password").press("Enter")

        for width in WIDTHS:
            for theme in THEMES:
                with Page(browser, width, theme) as shown:
                    shown.page.goto(url(one))
                    shown.check(f"login-{width}-{theme}")
        with Page(browser) as shown:
            log_in(shown.page, "none", "wrong")
            expect(shown.page.get_by_role("alert")).to_contain_text("The name or the password is wrong.")
        look = lambda page: sentence(page, "You lack the right to see expiry: serverStatus")  # noqa: E731

        def no_rights(page):
            look(page)
            expect(page.locator("#log .body")).to_contain_text("You lack the right to see this: getLog")

        for width in WIDTHS:
            for theme in THEMES:
                with Page(browser, width, theme) as shown:
                    log_in(shown.page, "none", "pw")
                    expect(shown.page.locator("#log .body")).not_to_be_empty(timeout=20_000)
                    no_rights(shown.page)
                    shown.check(f"no-rights-{width}-{theme}")
        with Page(browser) as shown:
            log_in(shown.page, "root", "pw")
            sentence(shown.page, "No TTL policies yet")
            shown.page.get_by_role("button", name="Log out").click()
            expect(shown.page.get_by_label("Password")).to_be_visible()
            shown.check()
        admin.close()


def promtool(*words, text=None):
    ended = subprocess.run(["promtool", *map(str, words)], input=text, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_promtool_accepts_the_metrics_and_the_alerts(busy):
    with urllib.request.urlopen(url(busy, "metrics")) as answer:
        promtool("check", "metrics", text=answer.read().decode())
    docs = Path(__file__).parents[3] / "docs"
    promtool("check", "rules", docs / "alerts.yaml")
    promtool("test", "rules", docs / "alerts_test.yaml")


def test_the_metrics_and_the_dashboard_have_the_same_names(busy):
    def scrape():
        with urllib.request.urlopen(url(busy, "metrics")) as answer:
            return answer.read().decode()

    text = scrape()
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    docs = Path(__file__).parents[3] / "docs"
    dashboard = json.loads((docs / "grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(expressions) > 30
    # Series that a server has after its first backup, with TLS, with an archive, or after the first cut of its log.
    later = {
        "mayflydb_backup_finished_timestamp_seconds", "mayflydb_certificate_expiry_timestamp_seconds",
        "mayflydb_backup_log_lag_seconds", "mayflydb_oplog_window_seconds",
    }
    # Series of a store in PostgreSQL.
    remote = {"mayflydb_storage_database_standbys", "mayflydb_storage_database_standbys_synchronous"}
    code = Path(__file__).parents[3] / "crates/server/src/http/metrics.rs"
    assert all(name in code.read_text() for name in later)
    assert all(name in (docs / "metrics.md").read_text() for name in remote)
    for text in [*expressions, (docs / "alerts.yaml").read_text()]:
        for word in text.replace("{", " ").replace("(", " ").replace("[", " ").replace(")", " ").split():
            if word.startswith("mayflydb_"):
                assert word in names | later | remote, word
