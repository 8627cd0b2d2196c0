"use strict";

// The first of four files that make one script: the helpers of all, the theme and the live updates. charts.js draws
// the curves, opened.js shows one completion, and completions.js lists all of them.

const LIVE = document.body.hasAttribute("data-live");
const DAMAGED = LIVE ? "This part is gone. Reload the page." : "This part of the file is damaged.";

const byId = (id) => document.getElementById(id);

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;

// Returns a text with symbols for the characters that would hide, move or reverse others.
function visible(text) {
    return text.replace(UNSEEN, (character) => {
        const code = character.codePointAt(0);
        if (code < 0x20) return String.fromCharCode(0x2400 + code);
        return code === 0x7f ? "\u2421" : `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
    });
}

// Makes an element of HTML. Children that are texts stay texts, whatever they hold.
function make(name, attributes = {}, ...children) {
    return dress(document.createElement(name), attributes, children);
}

// Makes an element of SVG.
function makeSvg(name, attributes = {}, ...children) {
    return dress(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function dress(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
    return element;
}

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en");

// A refusal of the watcher, in its words.
class Refusal extends Error {}

async function get(path) {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw new Refusal(await answer.text());
    return answer;
}

// Writes a text for readers and screen readers, which hear it again only when it differs.
function tell(element, text) {
    const shown = visible(text);
    if (element.textContent !== shown) element.textContent = shown;
}

// The theme

const THEMES = ["auto", "light", "dark"];

function startTheme() {
    const button = byId("theme");
    let theme = recalledTheme();
    const wear = () => {
        if (theme === "auto") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = theme;
        button.textContent = `Theme: ${theme}`;
    };
    button.addEventListener("click", () => {
        theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
        keepTheme(theme);
        wear();
    });
    button.hidden = false;
    wear();
}

// A browser may forbid storage, to pages from a disk in particular. The choice then lasts as long as
// the page.
function recalledTheme() {
    try {
        const theme = localStorage.getItem("firebrick-theme");
        return THEMES.includes(theme) ? theme : "auto";
    } catch {
        return "auto";
    }
}

function keepTheme(theme) {
    try {
        localStorage.setItem("firebrick-theme", theme);
    } catch {
        return;
    }
}

// The live page

const OFTEN = 2_000;
const SELDOM = 10_000;
const seen = { version: document.body.dataset.live, timer: 0, looking: false };

function startWatching() {
    document.addEventListener("visibilitychange", look);
    look();
}

async function look() {
    clearTimeout(seen.timer);
    if (document.hidden || seen.looking) return;
    seen.looking = true;
    let wait = SELDOM;
    try {
        const state = await (await get("state")).json();
        if (state.version !== seen.version) await replaceNumbers();
        seen.version = state.version;
        tell(byId("status"), state.status);
        await offerRows(state.rows);
        if (state.going) wait = OFTEN;
    } catch (error) {
        const ended = "The watcher has ended; the page shows the last state that it saw.";
        tell(byId("status"), error instanceof Refusal ? error.message : ended);
    }
    seen.looking = false;
    seen.timer = setTimeout(look, wait);
}

async function replaceNumbers() {
    const paths = ["glance", "curves", "findings"];
    const texts = await Promise.all(paths.map(async (path) => (await get(path)).text()));
    const held = [byId("numbers"), byId("figures"), byId("found")];
    const focus = document.activeElement;
    const focused = held.some((part) => part.contains(focus)) ? nameOf(focus) : null;
    // The server made these as it made the page itself: markup, with the texts in it escaped.
    held.forEach((part, nth) => keepingOpen(part, () => (part.innerHTML = texts[nth])));
    startCurves();
    if (focused) stops(held).find((stop) => nameOf(stop) === focused)?.focus({ preventScroll: true });
}

function keepingOpen(part, change) {
    const were = new Map([...part.querySelectorAll("summary")].map((it) => [nameOf(it), it.parentElement.open]));
    const large = [...part.querySelectorAll("figure.large")].map(({ id }) => id);
    change();
    for (const summary of part.querySelectorAll("summary")) {
        summary.parentElement.open = were.get(nameOf(summary)) ?? summary.parentElement.open;
    }
    for (const id of large) byId(id)?.classList.add("large");
}

function stops(parts) {
    return parts.flatMap((part) => [...part.querySelectorAll(".plot, summary")]);
}

// Returns a name that tells an element from its neighbours, also after they were all replaced.
function nameOf(element) {
    return `${element.closest("[id]")?.id} ${element.tagName} ${element.className}`;
}
