"use strict";

// The first of three files that make one script: the helpers of all, the theme, the curves and the live
// updates. opened.js shows one completion, and completions.js lists all of them.

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

// Writes a measured number in at most four digits, with a true minus sign.
function numeral(value) {
    if (typeof value !== "number") return "–";
    const size = Math.abs(value);
    const short = size === 0 || (size >= 1e-3 && size < 1e6);
    return (short ? plain.format(value) : value.toExponential(2)).replaceAll("-", "−");
}

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

// The curves

const hiddenRuns = new Set();
let charts = new Map();

function startCurves() {
    const before = charts;
    charts = new Map();
    for (const figure of byId("figures").querySelectorAll("figure.chart")) {
        try {
            const chart = readChart(figure);
            charts.set(figure.id, chart);
            showKey(chart);
            listenTo(chart);
            chart.step = before.get(figure.id)?.step ?? null;
        } catch {
            figure.append(make("p", { class: "note" }, DAMAGED));
        }
    }
    showLegend();
    hideRuns();
}

function readChart(figure) {
    const { plot, x, y, log, series } = JSON.parse(figure.dataset.chart);
    const svg = figure.querySelector("svg");
    const title = figure.querySelector("h4").textContent;
    const [left, top, right, bottom] = plot;
    const up = scale(y, [bottom, top]);
    return {
        figure,
        svg,
        title,
        plot: { left, top, right, bottom },
        across: scale(x, [left, right]),
        up: log ? (value) => up(Math.log10(value)) : up,
        steps: [...new Set(series.flatMap(({ points }) => points.map(([step]) => step)))].sort(byNumber),
        series: series.map((one) => ({ ...one, values: new Map(one.points) })),
    };
}

const byNumber = (a, b) => a - b;

function scale([low, high], [from, to]) {
    const stretch = high === low ? 0 : (to - from) / (high - low);
    return (value) => from + (value - low) * stretch;
}

// Shows a key under the title if one run has several lines. Otherwise the legend of runs tells all.
function showKey({ figure, series }) {
    if (new Set(series.map(({ run }) => run)).size === series.length) return;
    const entries = series.map((one) => make("span", { class: `run-${one.run}` }, swatch(one), one.name));
    figure.querySelector("figcaption").append(make("p", { class: "key" }, ...entries));
}

// The patterns of dashes are those of the charts.
const DASHES = [null, "6 4", "2 3", "10 3 2 3", "14 4"];

function swatch({ color, dash }) {
    const stroke = `stroke: var(--series-${color % 8})`;
    const line = { x1: 0, x2: 28, y1: 3, y2: 3, style: stroke, "stroke-dasharray": DASHES[dash % DASHES.length] };
    return makeSvg("svg", { class: "swatch", viewBox: "0 0 28 6", "aria-hidden": "true" }, makeSvg("line", line));
}

// Lays the crosshair and its readout over a chart.
function listenTo(chart) {
    const label = `${chart.title}. The arrow keys read the values.`;
    const box = make("div", { class: "plot", tabindex: "0", role: "group", "aria-label": label });
    chart.box = box;
    const viewBox = chart.svg.getAttribute("viewBox");
    chart.cross = makeSvg("svg", { class: "cross", viewBox, "aria-hidden": "true" });
    chart.readout = make("div", { class: "readout", hidden: "" });
    chart.svg.replaceWith(box);
    box.append(chart.svg, chart.cross, chart.readout);

    const point = (event) => showReading(chart, stepUnder(chart, event.clientX), false);
    box.addEventListener("pointermove", point);
    box.addEventListener("pointerdown", point);
    box.addEventListener("pointerleave", () => hideReading(chart));
    box.addEventListener("blur", () => hideReading(chart));
    box.addEventListener("focus", () => {
        if (box.matches(":focus-visible")) showReading(chart, chart.step ?? chart.steps.at(-1), true);
    });
    box.addEventListener("keydown", (event) => moveReading(chart, event));
}

function stepUnder(chart, clientX) {
    const { left, width } = chart.svg.getBoundingClientRect();
    const at = ((clientX - left) / width) * chart.svg.viewBox.baseVal.width;
    const distance = (step) => Math.abs(chart.across(step) - at);
    const nearer = (one, other) => (distance(other) < distance(one) ? other : one);
    return chart.steps.reduce(nearer, chart.steps[0]);
}

function moveReading(chart, event) {
    const last = chart.steps.length - 1;
    const found = chart.steps.indexOf(chart.step);
    const now = found < 0 ? last : found;
    const goals = {
        ArrowLeft: now - 1,
        ArrowRight: now + 1,
        PageDown: now - 10,
        PageUp: now + 10,
        Home: 0,
        End: last,
    };
    if (event.key === "Escape") hideReading(chart);
    if (!(event.key in goals) || last < 0) return;
    event.preventDefault();
    showReading(chart, chart.steps[Math.min(Math.max(goals[event.key], 0), last)], true);
}

function showReading(chart, step, spoken) {
    if (step === undefined) return;
    chart.step = step;
    const { left, top, right, bottom } = chart.plot;
    const at = chart.across(step);
    const read = chart.series.filter(({ run, values }) => !hiddenRuns.has(run) && values.has(step));
    const lines = read.map((one) => {
        const value = make("span", { class: "value" }, numeral(one.values.get(step)));
        return make("p", {}, swatch(one), make("span", { class: "name" }, one.name), value);
    });

    chart.cross.replaceChildren(
        makeSvg("line", { x1: at, x2: at, y1: top, y2: bottom }),
        ...read.flatMap((one) => dot(chart, one, at)),
    );
    // Only the keyboard's readings are spoken: a pointer passes too many.
    chart.readout.setAttribute("aria-live", spoken ? "polite" : "off");
    chart.readout.classList.toggle("before", at > (left + right) / 2);
    chart.readout.style.setProperty("--at", `${(100 * at) / chart.svg.viewBox.baseVal.width}%`);
    chart.readout.replaceChildren(make("p", { class: "at" }, `Step ${whole.format(step)}`), ...lines);
    chart.readout.hidden = false;
}

function dot(chart, { values, color }, at) {
    const height = chart.up(values.get(chart.step) ?? NaN);
    if (!Number.isFinite(height)) return [];
    return [makeSvg("circle", { cx: at, cy: height, r: 5, style: `fill: var(--series-${color % 8})` })];
}

function hideReading({ cross, readout }) {
    cross.replaceChildren();
    readout.hidden = true;
}

// Shows one button per run, if there are several runs.
function showLegend() {
    const runs = new Map();
    for (const { series } of charts.values()) {
        for (const one of series) {
            // A chart with several lines per run adds to the run's name. The shortest is the run's own.
            const known = runs.get(one.run);
            if (!known || one.name.length < known.name.length) runs.set(one.run, one);
        }
    }
    byId("legend").hidden = runs.size < 2;
    byId("legend").replaceChildren(...[...runs.values()].map(legendButton));
}

function legendButton(one) {
    const shown = !hiddenRuns.has(one.run);
    const button = make("button", { type: "button", "aria-pressed": String(shown) }, swatch(one), one.name);
    button.addEventListener("click", () => {
        const show = hiddenRuns.delete(one.run);
        if (!show) hiddenRuns.add(one.run);
        button.setAttribute("aria-pressed", String(show));
        hideRuns();
    });
    return button;
}

function hideRuns() {
    for (const element of byId("figures").querySelectorAll("[class*='run-']")) {
        const run = /(?:^| )run-(\d+)/.exec(element.getAttribute("class"))?.[1];
        element.classList.toggle("off", hiddenRuns.has(Number(run)));
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
    const texts = await Promise.all(["curves", "findings"].map(async (path) => (await get(path)).text()));
    const held = [byId("figures"), byId("found")];
    const focus = document.activeElement;
    const focused = held.some((part) => part.contains(focus)) ? nameOf(focus) : null;
    // The server made these two as it made the page itself: markup, with the texts in it escaped.
    held.forEach((part, nth) => keepingOpen(part, () => (part.innerHTML = texts[nth])));
    startCurves();
    if (focused) stops(held).find((stop) => nameOf(stop) === focused)?.focus({ preventScroll: true });
}

function keepingOpen(part, change) {
    const names = new Set([...part.querySelectorAll("details[open] > summary")].map(nameOf));
    change();
    for (const summary of part.querySelectorAll("summary")) {
        if (names.has(nameOf(summary))) summary.parentElement.open = true;
    }
}

function stops(parts) {
    return parts.flatMap((part) => [...part.querySelectorAll(".plot, summary")]);
}

// Returns a name that tells an element from its neighbours, also after they were all replaced.
function nameOf(element) {
    const words = element.matches("summary") ? element.textContent : "";
    return `${element.closest("[id]")?.id} ${element.className} ${words}`;
}
