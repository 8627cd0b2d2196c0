// The third of four files that make one script: one completion, opened. The texts in it are from
// models, so they become text nodes and nothing else.

const STATUSES = {
    kept: "trained on",
    filtered: "not trained on: all answers got the same reward, so no answer is better than the group",
    surplus: "surplus: the step had enough groups",
    masked: "not trained on: none of its completions counts",
};

// A surplus group is trained on when it is used by a later step.
function became(status, advantage) {
    if (status === "surplus" && advantage !== null) return "carried over, and trained on in a later step";
    return STATUSES[status] ?? words(status);
}

const SHADES = [
    { name: "log-probability", place: 1, ends: ["least likely", "most likely"] },
    { name: "ratio", place: 2, ends: ["less likely now", "more likely now"] },
    { name: "entropy", place: 3, ends: ["sure", "unsure"] },
];

// The panel of an open row

function panel(row, entry) {
    const { index } = list;
    const prompt = index.prompts[index.groups.prompt[index.rows.group[row]]];
    const asked = questionOf(index.groups.run[index.rows.group[row]], prompt.text);
    const whole = quote("Prompt", visible(prompt.text));
    const question = asked === prompt.text
        ? [heading("Prompt"), whole]
        : [heading("Question"), quote("Question", visible(asked)),
            make("details", { class: "whole" }, make("summary", {}, "As the model read it"), whole)];
    const written = [
        ...question,
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
    const status = names.statuses[groups.status[group]];
    const parts = Object.entries(entry?.parts ?? {}).map((part) => `${words(part[0])} ${reading(part[1], "number")}`);
    const pairs = [
        ["Run", runs[groups.run[group]]],
        ["Source", words(source)],
        ["Step", `${whole.format(list.steps[row])}, ${placeInStep(row)}`],
        ["Verdict", verdictBadge(names.verdicts[rows.verdict[row]])],
        ["Answer found", make("bdi", { class: "answer" }, visible(entry?.extracted ?? "") || "none")],
        ["Reward", reading(rows.reward[row], "number")],
        ["Its parts", visible(parts.join(", ")) || null],
        ["Advantage", reading(rows.advantage[row], "number")],
        ["Tokens", whole.format(rows.tokens[row])],
        ["Finish", words(names.finishes[rows.finish[row]])],
        ["Group", status === undefined ? undecided : became(status, rows.advantage[row])],
        ["Reward spread", groups.spread[group] === null ? null : reading(groups.spread[group], "number")],
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
        const rest = `reward ${reading(rows.reward[other], "number")}, ${whole.format(rows.tokens[other])} tokens`;
        return make("li", {}, link, verdict, rest);
    });
    return [heading("The group's other completions"), make("ul", { class: "siblings" }, ...items)];
}

// Texts

function excerpt(text) {
    const line = text.slice(0, 400).replace(/\s+/g, " ").trim();
    const cut = line.slice(0, 160).replace(/[\ud800-\udbff]$/, "");
    return visible(cut) + (cut.length < line.length || text.length > 400 ? "…" : "");
}

function completionText({ text, pieces }) {
    const shades = SHADES.filter(({ place }) => pieces?.some((piece) => typeof piece[place] === "number"));
    if (shades.length === 0) return [quote("Completion", text === "" ? "(empty)" : visible(text))];
    const spans = pieces.map((piece) => {
        const numbers = shades.map(({ name, place }) => `${name} ${reading(piece[place], "number")}`);
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

// Gives each piece a background. It is stronger for a piece that is less likely or less sure. A ratio
// has two colours, because it goes both ways from one.
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
    const ends = shade.ends.map((end, nth) => make("span", {}, `${end} ${reading([low, high][nth], "number")}`));
    legend.replaceChildren(ends[0], make("span", { class: `ramp ${shade.name}` }), ends[1]);
}
