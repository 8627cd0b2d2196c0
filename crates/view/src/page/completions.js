// The second of two files that make one script: the list of completions. The texts in it are from
// models, so they become text nodes and nothing else.

const PAGE = 50;
const CACHED = 24;
const AUTOMATIC = 20_000;

const SYMBOLS = { right: "✓", wrong: "✗", unparsable: "?", over_budget: "…", error: "!" };

const FATES = {
    kept: "trained on",
    filtered: "not trained on: all answers got the same reward, so no answer is better than the group",
    surplus: "put aside: the step had enough groups",
    masked: "not trained on: none of its completions counts",
};

// A surplus group is trained on when it is used by a later step.
function became(fate, advantage) {
    if (fate === "surplus" && advantage !== null) return "put aside, and trained on in a later step";
    return FATES[fate] ?? words(fate);
}

const SHADES = [
    { name: "log-probability", place: 1, ends: ["least likely", "most likely"] },
    { name: "ratio", place: 2, ends: ["less likely now", "more likely now"] },
    { name: "entropy", place: 3, ends: ["sure", "unsure"] },
];

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
    const { runs, names, prompts, groups, rows, blocks: starts } = index;
    const even = (table) => new Set(Object.values(table).map((column) => column.length)).size === 1;
    const within = (column, length) => column.every((entry) => entry >= 0 && entry < length);
    const sound = even(groups) && even(rows) && (rows.group.length === 0 || starts[0] === 0)
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

// A live run's list grows, and its blocks with it, so the watcher is told which list the page has.
function readBlock(number) {
    return readPart(LIVE ? `block/${number}?id=${list.index.id}` : `block/${number}`);
}

// The number of the block that a row is in: the last one that begins at it or before.
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

// The texts of a row. The last few blocks that were needed are kept.
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
    const { runs, names, groups } = list.index;
    const options = { run: runs, source: names.sources, finish: names.finishes, fate: names.fates };
    for (const [name, values] of Object.entries(options)) fillSelect(filters.elements[name], values);
    filters.elements.run.closest("label").hidden = runs.length < 2;
    filters.elements.fate.closest("label").hidden = groups.fate.every((fate) => fate === null);

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
    const label = (value) => (select.name === "run" ? value : value === "kept" ? FATES.kept : words(value));
    const options = values.map((value) => make("option", { value }, label(value)));
    select.replaceChildren(make("option", { value: "" }, "any"), ...options);
    choose(select, kept);
}

function choose(select, value) {
    select.value = value;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
}

// The form as the part of a link after `#completions?`, without what is left as it was.
function filtersAsLink() {
    const data = new FormData(filters);
    const link = new URLSearchParams();
    const put = (name, value) => value && link.set(name, value);
    for (const name of ["q", "run", "source", "finish", "fate"]) put(name, data.get(name));
    put("verdict", data.getAll("verdict").join(","));
    for (const name of ["step", "tokens"]) put(name, data.getAll(name).join("-").replace(/^-$/, ""));
    if (data.get("sort") !== "newest") put("sort", data.get("sort"));
    return link.toString().replaceAll("%2C", ",");
}

function filtersFromLink(text) {
    const link = new URLSearchParams(text);
    clearFilters();
    filters.elements.q.value = link.get("q") ?? "";
    for (const name of ["run", "source", "finish", "fate", "sort"]) {
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
    const { groups, rows, names } = list.index;
    const data = new FormData(filters);
    const number = (name, among) => among.indexOf(data.get(name));
    const fits = (wanted, value) => wanted < 0 || wanted === value;
    const run = number("run", list.index.runs);
    const source = number("source", names.sources);
    const fate = number("fate", names.fates);
    const finish = number("finish", names.finishes);
    const verdicts = new Set(data.getAll("verdict").map((name) => names.verdicts.indexOf(name)));
    const [step, tokens] = ["step", "tokens"].map((name) => range(data.getAll(name)));
    const asked = searched?.prompts.map((text) => text.includes(needle));

    const groupFits = groups.run.map((_, group) =>
        fits(run, groups.run[group]) && fits(source, groups.source[group])
        && fits(fate, groups.fate[group]) && step(groups.step[group]));
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

// All rows in an order. The rows of the index are by run, then by step.
function rowsInOrder(name) {
    if (orders[name]) return orders[name];
    const { steps, index: { rows } } = list;
    const reward = rows.reward.map((value) => value ?? -Infinity);
    const before = {
        newest: (a, b) => steps[b] - steps[a] || a - b,
        oldest: (a, b) => steps[a] - steps[b] || a - b,
        longest: (a, b) => rows.tokens[b] - rows.tokens[a] || a - b,
        reward: (a, b) => reward[b] - reward[a] || a - b,
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
    byId("rows").replaceChildren(...shown.map(tableRow));
    byId("rows").querySelector("button")?.setAttribute("tabindex", "0");
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
    const asked = excerpt(prompts[groups.prompt[group]].text);
    const completion = cell("text", "Completion", make("span", { class: "cut" }, "…"));
    fillExcerpt(completion.firstElementChild, row);
    return make("tr", { role: "row", id: `row-${row}`, "data-row": row },
        cell("step", "Step", button),
        cell("source", "Source", words(names.sources[groups.source[group]]), ...run),
        cell("verdict", "Verdict", verdictBadge(names.verdicts[rows.verdict[row]])),
        cell("number", "Reward", numeral(rows.reward[row])),
        cell("number", "Advantage", numeral(rows.advantage[row])),
        cell("number", "Tokens", whole.format(rows.tokens[row])),
        cell("text", "Prompt", make("span", { class: "cut", dir: "auto" }, asked)),
        completion);
}

// Evaluations draw no prompts: what they have in place of a draw is only for links.
function placeInStep(row) {
    const { names, groups, rows } = list.index;
    const group = rows.group[row];
    const drawn = names.sources[groups.source[group]] === "train";
    return `${drawn ? `draw ${groups.draw[group]}, ` : ""}completion ${rows.completion[row]}`;
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
const rowButtons = () => [...byId("rows").querySelectorAll("td.step > button")];

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
    list.open = row;
    line.querySelector("button").setAttribute("aria-expanded", "true");
    const entry = await readEntry(row).catch(() => null);
    if (list.open !== row || !line.isConnected || line.nextElementSibling?.matches(".panel-row")) return;
    const cell = make("td", { role: "cell", colspan: "8" }, panel(row, entry));
    line.after(make("tr", { role: "row", class: "panel-row" }, cell));
}

// The panel of an open row

function panel(row, entry) {
    const { index } = list;
    const prompt = index.prompts[index.groups.prompt[index.rows.group[row]]];
    const written = [
        heading("Prompt"), quote("Prompt", visible(prompt.text)),
        heading("Reference"), quote("Reference", visible(prompt.reference)),
        heading("Completion"), ...(entry ? completionText(entry) : [make("p", { class: "note" }, DAMAGED)]),
    ];
    const judged = [
        facts(row, entry), ...passRates(prompt, list.steps[row]), ...siblings(row),
        make("p", {}, make("a", { href: linkTo(row) }, "Link to this completion")),
    ];
    return make("div", { class: "panel" },
        make("div", { class: "written" }, ...written),
        make("div", { class: "judged" }, ...judged));
}

const heading = (text) => make("h3", {}, text);

function quote(label, ...children) {
    const attributes = { class: "quote", dir: "auto", tabindex: "0", role: "group", "aria-label": label };
    return make("div", attributes, ...children);
}

function facts(row, entry) {
    const { names, groups, rows, runs } = list.index;
    const group = rows.group[row];
    const source = names.sources[groups.source[group]];
    const undecided = source === "train" ? "not decided yet" : "sampled to evaluate, not to train on";
    const fate = names.fates[groups.fate[group]];
    const parts = Object.entries(entry?.parts ?? {}).map((part) => `${words(part[0])} ${numeral(part[1])}`);
    const pairs = [
        ["Run", runs[groups.run[group]]],
        ["Source", words(source)],
        ["Step", `${whole.format(list.steps[row])}, ${placeInStep(row)}`],
        ["Verdict", verdictBadge(names.verdicts[rows.verdict[row]])],
        ["Answer found", make("bdi", { class: "answer" }, visible(entry?.extracted ?? "") || "none")],
        ["Reward", numeral(rows.reward[row])],
        ["Its parts", visible(parts.join(", ")) || null],
        ["Advantage", numeral(rows.advantage[row])],
        ["Tokens", whole.format(rows.tokens[row])],
        ["Finish", words(names.finishes[rows.finish[row]])],
        ["Group", fate === undefined ? undecided : became(fate, rows.advantage[row])],
        ["Reward spread", groups.spread[group] === null ? null : numeral(groups.spread[group])],
    ];
    const known = pairs.filter(([, value]) => value !== null);
    return make("dl", {}, ...known.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function passRates({ history: past = [] }, now) {
    if (past.length === 0) return [];
    const bars = past.map(([step, right, judged]) => {
        const bar = make("span", { class: "rate", style: `--part: ${judged ? (100 * right) / judged : 0}%` });
        const under = make("small", {}, `step ${step}`);
        const drawn = make("span", { "aria-hidden": "true" }, bar, `${right}/${judged}`, under);
        const said = `right ${right} of ${judged} at step ${step}`;
        const spoken = make("span", { class: "unseen" }, said);
        return make("li", { title: said, class: step === now ? "now" : "" }, drawn, spoken);
    });
    return [heading("This prompt in training"), make("ol", { class: "history" }, ...bars)];
}

function siblings(row) {
    const { names, rows } = list.index;
    const group = rows.group[row];
    const others = [...list.steps.keys()].filter((other) => rows.group[other] === group && other !== row);
    if (others.length === 0) return [];
    const items = others.map((other) => {
        const link = make("a", { href: linkTo(other) }, `completion ${rows.completion[other]}`);
        const verdict = verdictBadge(names.verdicts[rows.verdict[other]]);
        const rest = `reward ${numeral(rows.reward[other])}, ${whole.format(rows.tokens[other])} tokens`;
        return make("li", {}, link, verdict, rest);
    });
    return [heading("The group's other completions"), make("ul", { class: "siblings" }, ...items)];
}

// Texts

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

// A text with symbols for the characters that would hide, move or reverse others.
function visible(text) {
    return text.replace(UNSEEN, (character) => {
        const code = character.charCodeAt(0);
        if (code < 0x20) return String.fromCharCode(0x2400 + code);
        return code === 0x7f ? "\u2421" : `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
    });
}

function excerpt(text) {
    const line = text.slice(0, 400).replace(/\s+/g, " ").trim();
    const cut = line.slice(0, 160).replace(/[\ud800-\udbff]$/, "");
    return visible(cut) + (cut.length < line.length || text.length > 400 ? "…" : "");
}

function completionText({ text, pieces }) {
    const shades = SHADES.filter(({ place }) => pieces?.some((piece) => typeof piece[place] === "number"));
    if (shades.length === 0) return [quote("Completion", text === "" ? "(empty)" : visible(text))];
    const spans = pieces.map((piece) => {
        const numbers = shades.map(({ name, place }) => `${name} ${numeral(piece[place])}`);
        return make("span", { title: numbers.join(", ") }, visible(piece[0]).replaceAll("\n", "↵\n"));
    });
    const legend = make("p", { class: "scale", hidden: "" });
    const choices = ["nothing", ...shades.map(({ name }) => name)];
    const select = make("select", {}, ...choices.map((name) => make("option", {}, name)));
    choose(select, list.shade);
    const paint = () => shadePieces(spans, pieces, shades.find(({ name }) => name === select.value), legend);
    select.addEventListener("change", () => {
        list.shade = select.value;
        paint();
    });
    paint();
    const label = make("label", { class: "shade" }, "Shade tokens by ", select);
    return [label, legend, quote("Completion", ...spans)];
}

// Gives each piece a background: the stronger, the less likely or the less sure. A ratio has two
// colours, as it goes both ways from one.
function shadePieces(spans, pieces, shade, legend) {
    legend.hidden = !shade;
    const values = pieces.map((piece) => (shade ? piece[shade.place] : null));
    const known = values.filter((value) => typeof value === "number" && Number.isFinite(value));
    const low = known.reduce((a, b) => Math.min(a, b), Infinity);
    const high = known.reduce((a, b) => Math.max(a, b), -Infinity);
    const far = Math.max(Math.abs(Math.log(low)), Math.abs(Math.log(high)));
    const strength = {
        "log-probability": (value) => (high - value) / (high - low),
        ratio: (value) => Math.abs(Math.log(value)) / far,
        entropy: (value) => (value - low) / (high - low),
    }[shade?.name];
    spans.forEach((span, nth) => {
        const strong = typeof values[nth] === "number" && strength ? strength(values[nth]) : NaN;
        span.style.setProperty("--strength", `${Number.isFinite(strong) ? Math.round(100 * strong) : 0}%`);
        span.className = shade ? `piece ${shade.name === "ratio" && values[nth] < 1 ? "lower" : ""}` : "";
    });
    if (!shade) return;
    const ends = shade.ends.map((end, nth) => make("span", {}, `${end} ${numeral([low, high][nth])}`));
    legend.replaceChildren(ends[0], make("span", { class: `ramp ${shade.name}` }), ends[1]);
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
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = byId("list").contains(event.target);
    const onRow = event.target.matches("td.step > button");
    const keys = {
        "/": () => filters.elements.q.focus(),
        ...(inside && {
            j: () => moveFocus(1),
            k: () => moveFocus(-1),
            n: () => turnPage(1),
            p: () => turnPage(-1),
            Escape: closeRow,
        }),
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

// The data come after the script, so that the curves answer before all completions have arrived.
async function start() {
    startTheme();
    startCurves();
    await new Promise((ready) => document.addEventListener("DOMContentLoaded", ready));
    await startCompletions();
    if (LIVE) startWatching();
}

start();
