#!/usr/bin/env python3
"""Opens every page of the built book in a headless Chromium, as wide as a desktop and as a phone.

    tools/pages.py FOLDER

FOLDER is the output of `mdbook build`. Fails if a link leads to a page or a heading that is not there, if a page is
wider than its window, if a table or a listing is cut off on a desktop, or if a page reports an error on its console.
Exit code 77 if there is no Chromium and all else is well.
"""

import html
import html.parser
import json
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

WIDTHS = {"desktop": 1280, "phone": 390}

# Loads each page into a frame, and notes the elements that are wider than their place.
HARNESS = """<!doctype html><meta charset="utf-8"><body><script>
const pages = PAGES, width = WIDTH, found = [];
const frame = document.createElement("iframe");
frame.style.cssText = `width:${width}px;height:900px;border:0`;
document.body.append(frame);
const wide = element => element.scrollWidth > element.clientWidth + 1;
async function look(page) {
    await new Promise(done => { frame.onload = done; frame.src = page; });
    const inner = frame.contentDocument;
    inner.querySelectorAll("details").forEach(details => details.open = true);
    // The content scrolls by itself: the page around it is never wider than the window.
    const content = inner.querySelector("#mdbook-content, #content");
    if (!content || wide(content)) found.push([page, "the page", content ? content.scrollWidth : 0]);
    for (const image of inner.images) {
        if (!image.naturalWidth) found.push([page, `no image ${image.src}`, 0]);
    }
    for (const element of inner.querySelectorAll(".table-wrapper, .formula, pre > code")) {
        if (element.matches("pre > code") && !element.textContent.trim()) {
            found.push([page, "an empty listing", 0]);
        } else if (wide(element)) {
            const start = element.textContent.trim().slice(0, 50);
            found.push([page, `${element.className || element.tagName}: ${start}`, element.scrollWidth]);
        }
    }
}
(async () => {
    for (const page of pages) await look(page);
    document.title = "done";
    const result = document.createElement("pre");
    result.id = "result";
    result.textContent = JSON.stringify(found);
    document.body.append(result);
})();
</script></body>"""


class Anchors(html.parser.HTMLParser):
    """The links of a page, and the places that links may lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.places.add(attrs.get("id") or "")
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])


def dead_links(folder, pages):
    """The links within the book that lead nowhere, as pairs of page and link."""
    read = {page: Anchors((folder / page).read_text(encoding="utf-8")) for page in pages}
    for page in pages:
        for link in read[page].links:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc or link == "print.html" or link.endswith("/print.html"):
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), address.path)) if address.path else page
            anchor = urllib.parse.unquote(address.fragment)
            if path in read:
                if anchor not in read[path].places:
                    yield page, link
            elif not (folder / path).exists():
                yield page, link


def look(browser, folder, pages, width):
    """The findings at a width, as lists of page, place and width, and the lines of the console."""
    addresses = [(folder / page).as_uri() for page in pages]
    with tempfile.TemporaryDirectory() as scratch:
        harness = pathlib.Path(scratch) / "harness.html"
        text = HARNESS.replace("PAGES", json.dumps(addresses)).replace("WIDTH", str(width))
        harness.write_text(text, encoding="utf-8")
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
            f"--user-data-dir={scratch}/profile", f"--window-size={width + 40},1000", "--enable-logging=stderr",
            "--virtual-time-budget=600000", "--timeout=300000", "--dump-dom", harness.as_uri(),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=400)
    result = re.search(r'<pre id="result">(.*?)</pre>', ran.stdout, re.S)
    if not result:
        sys.exit(f"the browser gave no result: {ran.stderr[-2000:]}")
    console = [line for line in ran.stderr.splitlines() if "ERROR:CONSOLE" in line or "Uncaught" in line]
    return json.loads(html.unescape(result.group(1))), console


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    pages = [page.relative_to(folder).as_posix() for page in sorted(folder.rglob("*.html"))]
    pages = [page for page in pages if page not in ("print.html", "404.html", "toc.html") and not page.startswith("formulas/")]
    failed = 0
    for page, link in dead_links(folder, pages):
        failed += 1
        print(f"{page}: {link} leads nowhere")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        print("SKIPPED: there is no Chromium")
        return 1 if failed else 77
    for name, width in WIDTHS.items():
        found, console = look(browser, folder, pages, width)
        for page, place, needed in found:
            # A phone may scroll a table or a formula within its page.
            if name == "phone" and place.startswith(("table-wrapper", "formula")):
                continue
            failed += 1
            page = page.removeprefix(folder.as_uri() + "/")
            print(f"{name}: {page}: {place}" + (f" is {needed} pixels wide" if needed else ""))
        for line in console:
            failed += 1
            print(f"{name}: {line}")
    print(f"{len(pages)} pages, {failed} findings", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
