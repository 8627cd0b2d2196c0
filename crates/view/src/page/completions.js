// The last of four files that make one script: the list of completions. The texts in it are from
// models, so they become text nodes and nothing else.

const PAGE = 100;
const CACHED = 24;
const AUTOMATIC = 20_000;

const SYMBOLS = { right: "✓", wrong: "✗", unparsable: "?", over_budget: "…", error: "!" };

// `open` is a row's number or null, and `found` holds the numbers of the rows that pass the filters.
const list = { index: null, steps: null, found: [], page: 0, open: null, turn: 0, shade: "" };
let orders = {};
let blocks = new Map();
let texts = null;

const filters = byId("filters");
const words = (name) => name.replaceAll("_", " ");

// Reading

async function readPart(name) {
    if (LIVE) return (await get(name)).json();
    const packed = atob(byId(name.replace("/", "-")).textContent.trim());
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(unpacked).json();
}

async function readIndex() {
    const index = await readPart("index");
    const { runs, recipes, frames, names, prompts, groups, rows, blocks: starts } = index;
    const even = (table) => new Set(Object.values(table).map((column) => column.length)).size === 1;
    const within = (column, length) => column.every((entry) => entry >= 0 && entry < length);
    const sound = frames.length === runs.length && recipes.length === runs.length && even(groups) && even(rows) && (rows.group.length === 0 || starts[0] === 0)
        && within(groups.run, runs.length) && within(groups.source, names.sources.length)
        && within(groups.prompt, prompts.length) && within(rows.group, groups.run.length)
        && within(rows.verdict, names.verdicts.length) && within(rows.finish, names.finishes.length);
    if (!sound) throw new Error("the index does not fit together");
    list.index = index;
    list.steps = Float64Array.from(rows.group, (group) => groups.step[group]);
    list.found = [];
    orders = {};
    blocks = new Map();
    texts = null;
}

// The list of a live run grows, and its blocks with it. So the page tells the watcher which list it has.
function readBlock(number) {
    return readPart(LIVE ? `block/${number}?id=${list.index.id}` : `block/${number}`);
}

// Returns the number of the block that a row is in: the last block that begins at the row or before it.
function blockOf(row) {
    const { blocks: starts } = list.index;
    let [low, high] = [0, starts.length];
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (starts[middle] <= row) low = middle;
        else high = middle;
    }
    return low;
}

// Reads the texts of a row. The last few blocks that were needed are kept.
async function readEntry(row) {
    const number = blockOf(row);
    const block = blocks.get(number) ?? readBlock(number);
    blocks.delete(number);
    blocks.set(number, block);
    if (blocks.size > CACHED) blocks.delete(blocks.keys().next().value);
    try {
        const entry = (await block)[row - list.index.blocks[number]];
        if (entry.gone) throw new Error("the record has let go of it");
        if (typeof entry.text !== "string") throw new Error("the entry has no text");
        return entry;
    } catch (error) {
        blocks.delete(number);
        throw error;
    }
}

// Reads all texts in lower case. Only a search needs them, and the first waits for them.
async function readTexts() {
    const { rows, prompts, blocks: starts } = list.index;
    const all = { rows: new Array(rows.group.length).fill(""), damaged: 0 };
    all.prompts = prompts.map(({ text, reference }) => `${text}\n${reference}`.toLowerCase());
    byId("progress").max = starts.length;
    for (let number = 0; number < starts.length; number += 1) {
        byId("progress").value = number;
        try {
            const entries = await readBlock(number);
            entries.forEach(({ text, extracted }, nth) => {
                all.rows[starts[number] + nth] = `${text}\n${extracted ?? ""}`.toLowerCase();
            });
        } catch {
            all.damaged += 1;
        }
    }
    return all;
}

// Filters

function fillFilters() {
    const { runs, recipes, names, groups } = list.index;
    const distinct = [...new Set(recipes)];
    const options = { recipe: distinct, run: runs, source: names.sources, finish: names.finishes, status: names.statuses };
    for (const [name, values] of Object.entries(options)) fillSelect(filters.elements[name], values);
    filters.elements.recipe.closest("label").hidden = distinct.length < 2 || distinct.length === runs.length;
    filters.elements.run.closest("label").hidden = runs.length < 2;
    filters.elements.status.closest("label").hidden = groups.status.every((status) => status === null);

    const checked = new Set(new FormData(filters).getAll("verdict"));
    const chips = names.verdicts.map((name) => {
        const box = make("input", { type: "checkbox", name: "verdict", value: name });
        box.checked = checked.has(name);
        return make("label", { class: "chip" }, box, verdictBadge(name), make("span", { class: "count" }));
    });
    byId("verdicts").querySelector(".chips").replaceChildren(...chips);
}

function fillSelect(select, values) {
    const kept = select.value;
    const label = (value) => (["recipe", "run"].includes(select.name) ? value : value === "kept" ? STATUSES.kept : words(value));
    const options = values.map((value) => make("option", { value }, label(value)));
    select.replaceChildren(make("option", { value: "" }, "any"), ...options);
    choose(select, kept);
}

function choose(select, value) {
    select.value = value;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
}

// Writes the form as the part of a link after `#completions?`, without the fields that nobody changed.
function filtersAsLink() {
    const data = new FormData(filters);
    const link = new URLSearchParams();
    const put = (name, value) => value && link.set(name, value);
    for (const name of ["q", "recipe", "run", "source", "finish", "status"]) put(name, data.get(name));
    put("verdict", data.getAll("verdict").join(","));
    for (const name of ["step", "tokens"]) put(name, data.getAll(name).join("-").replace(/^-$/, ""));
    if (data.get("sort") !== "newest") put("sort", data.get("sort"));
    return link.toString().replaceAll("%2C", ",");
}

function filtersFromLink(text) {
    const link = new URLSearchParams(text);
    clearFilters();
    filters.elements.q.value = link.get("q") ?? "";
    for (const name of ["recipe", "run", "source", "finish", "status", "sort"]) {
        choose(filters.elements[name], link.get(name) ?? "");
    }
    const verdicts = (link.get("verdict") ?? "").split(",");
    for (const box of filters.querySelectorAll("[name=verdict]")) box.checked = verdicts.includes(box.value);
    for (const name of ["step", "tokens"]) {
        const ends = (link.get(name) ?? "").split("-");
        filters.elements[name].forEach((input, nth) => (input.value = ends[nth] ?? ""));
    }
}

function clearFilters() {
    for (const box of filters.querySelectorAll("[name=verdict]")) box.checked = false;
    for (const input of filters.querySelectorAll("input:not([type=checkbox])")) input.value = "";
    for (const select of filters.querySelectorAll("select")) select.selectedIndex = 0;
}

// Finds the rows that pass the filters and shows the first page of them.
async function applyFilters() {
    list.turn += 1;
    const turn = list.turn;
    const needle = filters.elements.q.value.toLowerCase();
    const searched = needle ? await allTexts() : null;
    if (list.turn !== turn) return;
    byId("progress").hidden = true;
    const { found, counts } = findRows(needle, searched);
    list.found = found;
    list.page = 0;
    if (!found.includes(list.open)) list.open = null;
    tellCounts(counts, searched?.damaged);
    showPage();
}

async function allTexts() {
    const quick = setTimeout(() => {
        byId("progress").hidden = false;
        tell(byId("count"), "The page reads all texts, once.");
    }, 50);
    texts ??= readTexts();
    const all = await texts;
    clearTimeout(quick);
    return all;
}

function findRows(needle, searched) {
    const { groups, rows, names, recipes } = list.index;
    const data = new FormData(filters);
    const recipe = data.get("recipe");
    const number = (name, among) => among.indexOf(data.get(name));
    const fits = (wanted, value) => wanted < 0 || wanted === value;
    const run = number("run", list.index.runs);
    const source = number("source", names.sources);
    const status = number("status", names.statuses);
    const finish = number("finish", names.finishes);
    const verdicts = new Set(data.getAll("verdict").map((name) => names.verdicts.indexOf(name)));
    const [step, tokens] = ["step", "tokens"].map((name) => range(data.getAll(name)));
    const asked = searched?.prompts.map((text) => text.includes(needle));

    const groupFits = groups.run.map((_, group) =>
        (!recipe || recipe === recipes[groups.run[group]])
        && fits(run, groups.run[group]) && fits(source, groups.source[group])
        && fits(status, groups.status[group]) && step(groups.step[group]));
    const found = [];
    const counts = names.verdicts.map(() => 0);
    for (const row of rowsInOrder(data.get("sort"))) {
        const group = rows.group[row];
        if (!groupFits[group] || !fits(finish, rows.finish[row]) || !tokens(rows.tokens[row])) continue;
        if (searched && !asked[groups.prompt[group]] && !searched.rows[row].includes(needle)) {
            continue;
        }
        counts[rows.verdict[row]] += 1;
        if (verdicts.size === 0 || verdicts.has(rows.verdict[row])) found.push(row);
    }
    return { found, counts };
}

function range([from, to]) {
    const low = from === "" ? -Infinity : Number(from);
    const high = to === "" ? Infinity : Number(to);
    return (value) => value >= low && value <= high;
}

// Returns all rows in an order. The rows of the index are sorted by run, then by step.
function rowsInOrder(name) {
    if (orders[name]) return orders[name];
    const { steps, index: { rows } } = list;
    const reward = rows.reward.map((value) => value ?? -Infinity);
    const advantage = rows.advantage.map((value) => value ?? -Infinity);
    const before = {
        newest: (a, b) => steps[b] - steps[a] || a - b,
        oldest: (a, b) => steps[a] - steps[b] || a - b,
        longest: (a, b) => rows.tokens[b] - rows.tokens[a] || a - b,
        reward: (a, b) => reward[b] - reward[a] || a - b,
        least: (a, b) => reward[a] - reward[b] || a - b,
        advantage: (a, b) => advantage[b] - advantage[a] || a - b,
    };
    orders[name] = Int32Array.from(steps.keys()).sort(before[name]);
    return orders[name];
}

function tellCounts(counts, damaged) {
    const places = byId("verdicts").querySelectorAll(".count");
    places.forEach((place, nth) => tell(place, whole.format(counts[nth])));
    const link = new URLSearchParams(filtersAsLink());
    const set = [...link.keys()].filter((name) => name !== "q" && name !== "sort").length;
    tell(byId("more").firstElementChild, set ? `Filters (${set} set)` : "Filters");
    const found = `${whole.format(list.found.length)} of ${whole.format(list.steps.length)} completions`;
    const lost = damaged ? `. Damaged parts of the file were not searched: ${damaged}.` : "";
    tell(byId("count"), found + lost);
    const any = list.steps.length > 0;
    tell(byId("none"), any ? "No completion passes the filters." : "There are no completions yet.");
}

// The table

function showPage() {
    const pages = Math.max(1, Math.ceil(list.found.length / PAGE));
    list.page = Math.min(list.page, pages - 1);
    const shown = list.found.slice(list.page * PAGE, (list.page + 1) * PAGE);
    const lines = shown.map(tableRow);
    byId("rows").replaceChildren(...lines);
    byId("rows").querySelector("button")?.setAttribute("tabindex", "0");
    foldEqual(shown, lines);
    byId("list").querySelector("table").hidden = shown.length === 0;
    byId("none").hidden = shown.length > 0;
    byId("list").querySelector(".pager").hidden = pages < 2;
    tell(byId("page"), `Page ${whole.format(list.page + 1)} of ${whole.format(pages)}`);
    byId("previous").disabled = list.page === 0;
    byId("next").disabled = list.page === pages - 1;
    if (shown.includes(list.open)) openRow(list.open);
}

function tableRow(row) {
    const { names, groups, rows, prompts, runs } = list.index;
    const group = rows.group[row];
    const cell = (kind, label, ...children) =>
        make("td", { role: "cell", class: kind, "data-label": label }, ...children);
    const step = whole.format(list.steps[row]);
    const button = make("button", { type: "button", tabindex: "-1", "aria-expanded": "false" }, step);
    button.setAttribute("aria-label", `Step ${step}, ${placeInStep(row)}`);
    const run = runs.length > 1 ? [make("span", { class: "run" }, runs[groups.run[group]])] : [];
    const asked = excerpt(questionOf(groups.run[group], prompts[groups.prompt[group]].text));
    const completion = cell("text", "Completion", make("span", { class: "cut" }, "…"));
    fillExcerpt(completion.firstElementChild, row);
    return make("tr", { role: "row", id: `row-${row}`, "data-row": row },
        cell("step", "Step", button),
        cell("source", "Source", words(names.sources[groups.source[group]]), ...run),
        cell("verdict", "Verdict", verdictBadge(names.verdicts[rows.verdict[row]])),
        cell("number", "Reward", reading(rows.reward[row], "number")),
        cell("number", "Advantage", reading(rows.advantage[row], "number")),
        cell("number", "Tokens", whole.format(rows.tokens[row])),
        cell("text", "Question", make("span", { class: "cut", dir: "auto" }, asked)),
        completion);
}

// Returns the question of a prompt, without the template and the pattern around it.
function questionOf(run, text) {
    const { before, after } = list.index.frames[run];
    const framed = text.startsWith(before) && text.endsWith(after) && text.length >= before.length + after.length;
    return (framed && text.slice(before.length, text.length - after.length).trim()) || text;
}

// Evaluations draw no prompts. The number that they have in place of a draw is only for links.
function placeInStep(row) {
    const { names, groups, rows } = list.index;
    const group = rows.group[row];
    const drawn = names.sources[groups.source[group]] === "train";
    return `${drawn ? `draw ${groups.draw[group]}, ` : ""}completion ${rows.completion[row]}`;
}

// Shows answers of a group that are the same as one, with their number, once their texts are there.
async function foldEqual(shown, lines) {
    const { rows } = list.index;
    const read = await Promise.all(shown.map((row) => readEntry(row).catch(() => null)));
    const first = new Map();
    shown.forEach((row, nth) => {
        if (!read[nth] || !lines[nth].isConnected) return;
        const key = JSON.stringify([rows.group[row], rows.verdict[row], rows.reward[row], read[nth].text]);
        const known = first.get(key) ?? { line: lines[nth], same: [] };
        first.set(key, known);
        if (known.line !== lines[nth]) known.same.push(lines[nth]);
    });
    for (const { line, same } of first.values()) {
        if (same.length === 0) continue;
        const hide = (hidden) => same.forEach((other) => (other.hidden = hidden && Number(other.dataset.row) !== list.open));
        const button = make("button", { type: "button", class: "same", "aria-pressed": "false" }, `×${same.length + 1}`);
        button.title = `${same.length + 1} equal answers: show each`;
        button.addEventListener("click", (event) => {
            event.stopPropagation();
            const apart = button.getAttribute("aria-pressed") === "false";
            button.setAttribute("aria-pressed", String(apart));
            hide(!apart);
        });
        line.querySelector("td.verdict").append(" ", button);
        hide(true);
    }
}

async function fillExcerpt(span, row) {
    try {
        span.textContent = excerpt((await readEntry(row)).text) || "(empty)";
        span.dir = "auto";
    } catch {
        span.textContent = DAMAGED;
        span.classList.add("damaged");
    }
}

function verdictBadge(name) {
    const symbol = make("span", { "aria-hidden": "true" }, SYMBOLS[name] ?? "•");
    return make("span", { class: "badge", "data-verdict": name }, symbol, ` ${words(name)}`);
}

function turnPage(by) {
    const last = Math.ceil(list.found.length / PAGE) - 1;
    const page = list.page + by;
    if (page < 0 || page > last) return;
    list.page = page;
    list.open = null;
    showPage();
    byId("count").scrollIntoView({ block: "start" });
    const focused = document.activeElement;
    if (!byId("list").contains(focused) || focused.disabled) focusRow(rowButtons()[0]);
}

// Rows are one stop for the Tab key; within them the focus moves by other keys.
const rowButtons = () => [...byId("rows").querySelectorAll("tr:not([hidden]) > td.step > button[aria-expanded]")];

function focusRow(button) {
    if (!button) return;
    for (const other of rowButtons()) other.tabIndex = -1;
    button.tabIndex = 0;
    button.focus();
    button.closest("tr").scrollIntoView({ block: "nearest" });
}

function moveFocus(by) {
    const buttons = rowButtons();
    const now = document.activeElement.closest?.("#rows > tr");
    const row = now?.classList.contains("panel-row") ? now.previousElementSibling : now;
    const at = buttons.findIndex((button) => button.closest("tr") === row);
    focusRow(buttons[at < 0 ? 0 : Math.min(Math.max(at + by, 0), buttons.length - 1)]);
}

function toggleRow(row) {
    const same = list.open === row;
    closeRow();
    if (!same) openRow(row);
}

function closeRow() {
    const inside = byId("rows").querySelector(".panel-row")?.contains(document.activeElement);
    byId("rows").querySelector(".panel-row")?.remove();
    const button = byId(`row-${list.open}`)?.querySelector("button");
    button?.setAttribute("aria-expanded", "false");
    if (inside) focusRow(button);
    list.open = null;
}

async function openRow(row) {
    const line = byId(`row-${row}`);
    line.hidden = false;
    list.open = row;
    line.querySelector("button").setAttribute("aria-expanded", "true");
    const entry = await readEntry(row).catch(() => null);
    if (list.open !== row || !line.isConnected || line.nextElementSibling?.matches(".panel-row")) return;
    const cell = make("td", { role: "cell", colspan: "8" }, panel(row, entry));
    line.after(make("tr", { role: "row", class: "panel-row" }, cell));
}

// Links

function linkTo(row) {
    const { names, groups, rows, runs } = list.index;
    const group = rows.group[row];
    const place = [runs[groups.run[group]], names.sources[groups.source[group]]];
    const numbers = [list.steps[row], groups.draw[group], rows.completion[row]];
    return `#completion/${[...place, ...numbers].map(encodeURIComponent).join("/")}`;
}

function rowOfLink(link) {
    const { names, groups, rows, runs } = list.index;
    const parts = link.slice("#completion/".length).split("/").map(decodeURIComponent);
    const [run, source, step, draw, completion] = parts;
    const group = groups.run.findIndex((_, nth) =>
        runs[groups.run[nth]] === run && names.sources[groups.source[nth]] === source
        && groups.step[nth] === Number(step) && groups.draw[nth] === draw);
    const row = rows.group.findIndex((entry, nth) =>
        entry === group && rows.completion[nth] === Number(completion));
    return row < 0 ? null : row;
}

async function followLink() {
    if (!list.index) return;
    const link = location.hash;
    if (link.startsWith("#completions?")) {
        filtersFromLink(link.slice("#completions?".length));
        await applyFilters();
        byId("completions").scrollIntoView();
    } else if (link.startsWith("#completion/")) {
        await showLinked(link);
    } else if (list.open !== null) {
        closeRow();
    }
}

async function showLinked(link) {
    let row = null;
    try {
        row = rowOfLink(link);
    } catch {
        row = null;
    }
    byId("trouble").hidden = row !== null;
    if (row === null) {
        tell(byId("trouble"), "The linked completion is not in this page.");
        byId("completions").scrollIntoView();
        return;
    }
    if (!list.found.includes(row)) {
        clearFilters();
        await applyFilters();
    }
    closeRow();
    list.open = row;
    list.page = Math.floor(list.found.indexOf(row) / PAGE);
    showPage();
    focusRow(byId(`row-${row}`).querySelector("button"));
    byId(`row-${row}`).scrollIntoView({ block: "start" });
}

function changeFilters() {
    byId("trouble").hidden = true;
    const link = filtersAsLink();
    if (link || location.hash.startsWith("#completion")) {
        history.replaceState(null, "", `#completions${link && "?"}${link}`);
    }
    applyFilters();
}

// New completions of a live run

async function offerRows(count) {
    const known = list.index ? list.steps.length : 0;
    const button = byId("fresh");
    button.hidden = count === known;
    if (count === known) return;
    if (!list.index || (count < AUTOMATIC && untouched())) return showFresh();
    const more = `${whole.format(count - known)} new completions: show`;
    tell(button, count > known ? more : "The completions have changed: show");
}

function untouched() {
    const section = byId("completions");
    const still = filtersAsLink() === "" && list.page === 0 && list.open === null;
    return still && !section.contains(document.activeElement) && byId("list").getBoundingClientRect().top > 0;
}

async function showFresh() {
    try {
        await readIndex();
    } catch {
        return;
    }
    byId("fresh").hidden = true;
    byId("trouble").hidden = true;
    byId("browser").hidden = false;
    fillFilters();
    list.open = null;
    await applyFilters();
}

// Keys

function pressKey(event) {
    const typing = event.target.matches("input:not([type=checkbox]), select");
    // Out of a field, the other keys work again.
    if (typing && event.key === "Escape") {
        event.preventDefault();
        event.target.blur();
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = byId("list").contains(event.target);
    const onRow = event.target.matches("td.step > button[aria-expanded]");
    const keys = {
        "/": () => filters.elements.q.focus(),
        j: () => moveFocus(1),
        k: () => moveFocus(-1),
        n: () => turnPage(1),
        p: () => turnPage(-1),
        ...(inside && { Escape: closeRow }),
        ...(onRow && { ArrowDown: () => moveFocus(1), ArrowUp: () => moveFocus(-1) }),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
}

function clickRow(event) {
    const line = event.target.closest("tr[data-row]");
    if (!line || !getSelection().isCollapsed) return;
    focusRow(line.querySelector("button"));
    toggleRow(Number(line.dataset.row));
}

function listen() {
    let typing = 0;
    filters.addEventListener("input", (event) => {
        clearTimeout(typing);
        typing = setTimeout(changeFilters, event.target.matches("[type=search], [type=number]") ? 200 : 0);
    });
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("reset", (event) => {
        event.preventDefault();
        clearFilters();
        changeFilters();
    });
    byId("rows").addEventListener("click", clickRow);
    byId("previous").addEventListener("click", () => turnPage(-1));
    byId("next").addEventListener("click", () => turnPage(1));
    byId("fresh").addEventListener("click", showFresh);
    document.addEventListener("keydown", pressKey);
    window.addEventListener("hashchange", followLink);
}

async function startCompletions() {
    byId("more").open = !matchMedia("(max-width: 44rem)").matches;
    listen();
    try {
        await readIndex();
    } catch {
        byId("trouble").hidden = false;
        const old = !LIVE && !("DecompressionStream" in window);
        tell(byId("trouble"), old ? "This browser is too old to read the completions." : DAMAGED);
        return;
    }
    byId("browser").hidden = false;
    fillFilters();
    await applyFilters();
    await followLink();
}

// The data come after the script, so that the curves are there before all completions have arrived.
async function start() {
    startTheme();
    startCurves();
    await new Promise((ready) => document.addEventListener("DOMContentLoaded", ready));
    await startCompletions();
    if (LIVE) startWatching();
}

start();
