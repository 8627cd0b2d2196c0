// The second of four files that make one script: the charts. Each figure has its numbers as JSON. They are drawn
// here, because only here is it known how wide a chart is, which steps are looked at, and which runs are shown.

const HEIGHTS = { plain: 168, lead: 280, large: 420 };
const BELOW = 26;
const ABOVE = 10;
const LETTER = 7;
const LINE_HEIGHT = 15;

// `range` is the steps that all charts show, or null for all of them; `step` is the one under the pointer.
// `open` is the parts that were open before a curve was looked for.
const view = { range: null, step: null, smooth: null, hidden: new Set(), open: null };
let charts = new Map();

function startCurves() {
    charts = new Map();
    for (const figure of byId("figures").querySelectorAll("figure.chart")) {
        try {
            const chart = readChart(figure);
            charts.set(figure.id, chart);
            listenTo(chart);
        } catch {
            figure.append(make("p", { class: "note" }, DAMAGED));
        }
    }
    showLegend();
    showTools();
    showGists();
    find();
    watchSizes();
}

function readChart(figure) {
    const data = JSON.parse(figure.dataset.chart);
    const title = figure.querySelector("figcaption > :first-child").textContent;
    const label = `${title}. ${figure.dataset.label} The arrow keys read the values.`;
    const box = make("div", { class: "plot", tabindex: "0", role: "group", "aria-label": label });
    const readout = make("div", { class: "readout", hidden: "" });
    figure.querySelector(".space").replaceChildren(box, readout);
    const series = data.series.map((one) => ({ ...one, values: new Map(one.points) }));
    const steps = [...new Set(series.flatMap(({ points }) => points.map(([step]) => step)))].sort(byNumber);
    const chart = { ...data, figure, title, box, readout, series, steps };
    const button = figure.querySelector(".enlarge");
    button.setAttribute("aria-pressed", String(figure.classList.contains("large")));
    button.addEventListener("click", () => enlarge(chart));
    figure.querySelector(".csv").addEventListener("click", () => save(chart));
    return chart;
}

const byNumber = (a, b) => a - b;

// The size of charts, and their place in the grid

const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
        const chart = charts.get(target.closest("figure")?.id);
        if (chart?.box === target) drawChart(chart);
    }
    arrange();
});

function watchSizes() {
    sizes.disconnect();
    for (const { box } of charts.values()) sizes.observe(box);
}

// Lets the first chart of each part take the places that the others would leave empty in the last row.
function arrange() {
    for (const grid of byId("figures").querySelectorAll(".grid")) {
        const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
        const figures = [...grid.querySelectorAll("figure.chart:not([hidden])")];
        const large = figures.filter((figure) => figure.classList.contains("large")).length;
        const count = figures.length - large;
        const empty = (columns - (count % columns)) % columns;
        const first = figures.find((figure) => !figure.classList.contains("large"));
        for (const figure of figures) figure.style.gridColumn = "";
        if (first) first.style.gridColumn = `span ${Math.min(1 + empty, columns)}`;
    }
}

function enlarge(chart) {
    const large = chart.figure.classList.toggle("large");
    chart.figure.querySelector(".enlarge").setAttribute("aria-pressed", String(large));
    arrange();
    drawChart(chart);
    if (large) chart.figure.scrollIntoView({ block: "nearest" });
}

// Scales

// Units in which numbers are read. A unit has the sizes from which each of its names is used.
const UNITS = {
    share: [[0, 0.01, " %"]],
    number: [[1e9, 1e9, " G"], [1e6, 1e6, " M"], [1e4, 1e3, " k"], [1e-4, 1, ""]],
    seconds: [[7200, 3600, " h"], [120, 60, " min"], [0, 1, " s"]],
    bytes: [[2 ** 30, 2 ** 30, " GiB"], [2 ** 20, 2 ** 20, " MiB"], [0, 2 ** 10, " KiB"]],
};
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

const raised = (power) => (power < 0 ? "⁻" : "") + [...String(Math.abs(power))].map((n) => SUPERSCRIPTS[n]).join("");

// Returns the factor and the name of the unit for numbers up to `size`.
function unitFor(unit, size) {
    const found = UNITS[unit].find(([from]) => size >= from);
    if (found && size < 1e12 * found[1]) return { factor: found[1], name: found[2] };
    if (size === 0) return { factor: 1, name: "" };
    const power = Math.floor(Math.log10(size));
    return { factor: 10 ** power, name: ` · 10${raised(power)}` };
}

// Writes a number as people read it: 83.3 %, 10 k, 1.5 GiB, 3.1 · 10⁻⁷.
function reading(value, unit) {
    if (typeof value !== "number" || !Number.isFinite(value)) return "–";
    const { factor, name } = unitFor(unit, Math.abs(value));
    return plain.format(value / factor).replaceAll("-", "−") + name;
}

// Returns places for about `count` marks between two numbers, at multiples of 1, 2 or 5.
function marks(low, high, count) {
    const rough = (high - low) / count;
    if (!(rough > 0)) return [{ value: low, step: 1 }];
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step && found.length < 50; at += 1) {
        found.push({ value: at * step + 0, step });
    }
    return found;
}

// Returns the marks of the vertical axis with their texts.
function marksUp(chart, low, high, count) {
    if (chart.log) {
        const found = high - low > 2 ? wholePowers(low, high, count) : marksWithinDecade(low, high);
        if (found.length > 1) return found.map((at) => ({ at, text: powerText(at) }));
        const linear = marksUp({ ...chart, log: false }, 10 ** low, 10 ** high, count);
        return linear.map(({ at, text }) => ({ at: Math.log10(at), text }));
    }
    const { factor, name } = unitFor(chart.unit, Math.max(Math.abs(low), Math.abs(high)));
    return marks(low / factor, high / factor, count).map(({ value, step }) => {
        const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
        return { at: value * factor, text: value.toFixed(Math.min(decimals, 6)).replace("-", "−") + name };
    });
}

function wholePowers(low, high, count) {
    const step = Math.ceil((high - low) / count);
    const first = Math.ceil(low / step) * step;
    return Array.from({ length: Math.floor((high - first) / step) + 1 }, (_, nth) => first + nth * step);
}

function marksWithinDecade(low, high) {
    const found = [];
    for (let power = Math.floor(low); power <= high; power += 1) {
        for (const times of [1, 2, 5]) {
            const at = power + Math.log10(times);
            if (at >= low && at <= high) found.push(at);
        }
    }
    return found;
}

function powerText(at) {
    if (at > -4 && at < 4) return String(Number((10 ** at).toPrecision(1)));
    const power = Math.floor(at + 1e-9);
    const times = Math.round(10 ** (at - power));
    return `${times === 1 ? "" : `${times} · `}10${raised(power)}`;
}

// Lines

// A running mean in which a step counts half as much as one that is `half` steps newer. It begins without a bias.
function smoothed(points, half) {
    let [sum, weight, last] = [0, 0, points[0]?.[0]];
    return points.map(([step, value]) => {
        if (!Number.isFinite(value)) return [step, value];
        const keep = 0.5 ** ((step - last) / half);
        sum = keep * sum + value;
        weight = keep * weight + 1;
        last = step;
        return [step, sum / weight];
    });
}

// Returns the shown lines, those of a recipe's runs together.
function setsOf(chart) {
    const shown = chart.series.filter(({ group }) => !view.hidden.has(group));
    return [...Map.groupBy(shown, ({ group, line }) => `${group} ${line}`).values()];
}

// Returns the lines that are to be drawn. Of several runs of a recipe the mean is drawn, over the single runs.
function linesOf(chart) {
    const lines = [];
    for (const set of setsOf(chart)) {
        const [first] = set;
        if (chart.stacked) {
            lines.push(first);
            continue;
        }
        if (set.length === 1) {
            lines.push(...withSmooth(first));
            continue;
        }
        const runs = set.map((one) => ({ ...one, points: smoothedIf(one), faint: true, label: null, band: [] }));
        const values = runs.map(({ points }) => new Map(points));
        const common = first.points.map(([step]) => step).filter((step) => values.every((of) => Number.isFinite(of.get(step))));
        const among = (step) => values.map((of) => of.get(step));
        const mean = common.map((step) => [step, sumOf(among(step)) / set.length]);
        const band = common.map((step) => [step, Math.min(...among(step)), Math.max(...among(step))]);
        lines.push(...runs, { ...first, points: mean, band });
    }
    return lines;
}

const sumOf = (values) => values.reduce((a, b) => a + b, 0);

// The half-life is a share of the longest run, so that a short run is not smoothed away, and one for all lines.
function smoothedIf(one) {
    const half = smoothing() * lastStep();
    return half >= 1 && one.smooth ? smoothed(one.points, half) : one.points;
}

const lastStep = () => Math.max(0, ...[...charts.values()].map(({ steps }) => steps.at(-1) ?? 0));

function withSmooth(one) {
    const points = smoothedIf(one);
    if (points === one.points) return [one];
    return [{ ...one, faint: true, label: null, band: [] }, { ...one, points }];
}

// By default long runs are smoothed, and short ones are not.
function smoothing() {
    if (view.smooth !== null) return view.smooth;
    return lastStep() > 60 ? 0.02 : 0;
}

// Drawing

function extent(chart, lines, across) {
    const place = (value) => (chart.log ? Math.log10(value) : value);
    let [low, high] = [Infinity, -Infinity];
    const take = (value) => {
        const at = place(value);
        if (!Number.isFinite(at) || Math.abs(at) > 1e300) return;
        low = Math.min(low, at);
        high = Math.max(high, at);
    };
    for (const { points, band = [] } of lines) {
        const values = points.filter(([step]) => inRange(step, across)).map(([, value]) => value);
        for (const value of [...values, valueAt(points, across[0]), valueAt(points, across[1])]) take(value);
        for (const [step, ...ends] of band) if (inRange(step, across)) ends.forEach(take);
    }
    if (chart.stacked) return [0, 1];
    if (low > high) return [0, 1];
    const room = high > low ? 0.06 * (high - low) : low === 0 ? (chart.unit === "share" ? 0.05 : 1) : 0.1 * Math.abs(low);
    let [bottom, top] = [low - room, high + room];
    if (!chart.log && low >= 0) bottom = Math.max(0, bottom);
    // An accuracy is seen against all that it could be, unless it moves within a small part of that.
    if (chart.unit === "share") {
        if (high > 0.35) bottom = Math.min(bottom, 0);
        top = Math.min(1, top);
    }
    if (bottom >= top) [bottom, top] = [bottom - 0.5, top + 0.5];
    return [bottom, top];
}

// Returns the value of a line at a step, between two points by a straight line. Outside the line it has none.
function valueAt(points, step) {
    const after = points.findIndex(([at]) => at >= step);
    if (after < 0) return NaN;
    const [at, value] = points[after];
    if (at === step || after === 0) return at === step ? value : NaN;
    const [from, before] = points[after - 1];
    return before + ((value - before) * (step - from)) / (at - from);
}

function stepsShown() {
    if (view.range) return view.range;
    const ends = [...charts.values()].filter(({ steps }) => steps.length > 0);
    const low = Math.min(...ends.map(({ steps }) => steps[0]));
    const high = Math.max(...ends.map(({ steps }) => steps.at(-1)));
    return low < high ? [low, high] : [low - 1, high + 1];
}

const scale = ([low, high], [from, to]) => (value) => from + ((value - low) * (to - from)) / (high - low);

function drawChart(chart) {
    const width = Math.round(chart.box.clientWidth);
    if (width < 40) return;
    const { classList } = chart.figure;
    const height = classList.contains("large") ? HEIGHTS.large : chart.lead ? HEIGHTS.lead : HEIGHTS.plain;
    const lines = linesOf(chart);
    chart.lines = lines.filter(({ faint }) => !faint).map((line) => ({ ...line, at: new Map(line.points) }));
    const across = stepsShown();
    const up = extent(chart, lines, across);
    const ticks = marksUp(chart, up[0], up[1], height > 200 ? 6 : 4);
    // Charts of one width have their plots at one place, so that steps are below each other.
    const left = Math.max(50, 10 + Math.max(...ticks.map(({ text }) => text.length)) * LETTER);
    const labels = labelsOf(chart, lines, across, Math.floor((0.3 * width - 14) / LETTER));
    const longest = Math.max(0, ...labels.map(({ text }) => text.length));
    const right = longest ? 14 + longest * LETTER : 12;

    const x = scale(across, [left, width - right]);
    const y = scale(up, [height - BELOW, ABOVE]);
    chart.drawn = { x, y, left, right: width - right, width, height, across };
    const parts = [grid(chart, ticks, height), ...(chart.stacked ? areas(chart, lines) : paths(chart, lines))];
    const attributes = { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" };
    const cross = makeSvg("g", { class: "cross" });
    chart.box.replaceChildren(makeSvg("svg", attributes, ...parts, ...labelTexts(chart, labels), cross));
    chart.cross = cross;
    if (view.step !== null) markStep(chart, view.step);
}

function grid(chart, ticks, height) {
    const { x, y, left, right, width, across } = chart.drawn;
    const parts = ticks.map(({ at, text }) => makeSvg("g", {},
        makeSvg("line", { class: "rule", x1: left, x2: right, y1: y(at), y2: y(at) }),
        makeSvg("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, text)));
    const count = Math.max(2, Math.min(8, Math.round((right - left) / 90)));
    const steps = marks(across[0], across[1], count).map(({ value }) => value).filter(Number.isInteger);
    steps.forEach((value, nth) => {
        const text = nth === 0 ? `step ${whole.format(value)}` : whole.format(value);
        const half = (text.length * LETTER) / 2;
        const at = Math.min(Math.max(x(value), half + 1), width - half - 1);
        parts.push(makeSvg("text", { x: at, y: height - 8, "text-anchor": "middle" }, text));
    });
    return makeSvg("g", { class: "axes" }, ...parts);
}

// Splits points at the gaps between them, and cuts off what is not shown.
function piecesOf(chart, points) {
    const { x, y, across } = chart.drawn;
    const pieces = [[]];
    points.forEach(([step, value], nth) => {
        // The neighbours of what is shown are kept, so that lines cross the edges.
        const [before, after] = [points[nth - 1]?.[0] ?? step, points[nth + 1]?.[0] ?? step];
        if (after < across[0] || before > across[1]) return;
        const at = y(chart.log ? Math.log10(value) : value);
        if (Number.isFinite(at) && Math.abs(value) < 1e300) pieces.at(-1).push([x(step), at]);
        else if (pieces.at(-1).length > 0) pieces.push([]);
    });
    return pieces.filter((piece) => piece.length > 0);
}

const inRange = (step, [from, to]) => step >= from && step <= to;
const route = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

function paths(chart, lines) {
    const { x, y } = chart.drawn;
    const bands = lines.filter(({ band }) => band?.length > 1).map(({ band, color, run }) => {
        const place = (value) => y(chart.log ? Math.log10(value) : value);
        const upper = band.map(([step, , to]) => [x(step), place(to)]);
        const lower = band.map(([step, from]) => [x(step), place(from)]).reverse();
        return makeSvg("polygon", { class: `run-${run}`, points: route([...upper, ...lower]), style: `fill: var(--${color})` });
    });
    const drawn = lines.flatMap((line) => piecesOf(chart, line.points).map((piece) => {
        const style = `stroke: var(--${line.color})`;
        if (piece.length === 1) {
            const [cx, cy] = piece[0];
            return makeSvg("circle", { class: `run-${line.run} dot`, cx, cy, r: 3, style: `fill: var(--${line.color})` });
        }
        const dots = line.smooth || line.faint || piece.length > 40 ? [] : piece.map(([cx, cy]) =>
            makeSvg("circle", { class: `run-${line.run} dot`, cx, cy, r: 3, style: `fill: var(--${line.color})` }));
        const kind = `run-${line.run}${line.faint ? " faint" : ""}${line.behind ? " behind" : ""}`;
        const attributes = { class: kind, points: route(piece), style, "stroke-dasharray": DASHES[line.dash] };
        return makeSvg("g", {}, makeSvg("polyline", attributes), ...dots);
    }));
    return [clip(chart, [...bands, ...drawn])];
}

// The patterns tell lines of one colour apart.
const DASHES = [null, "6 4", "2 3", "10 3 2 3", "14 4"];

function areas(chart, lines) {
    const { x, y } = chart.drawn;
    const floor = new Map();
    const drawn = lines.filter(({ faint }) => !faint).map((line) => {
        const points = line.points.filter(([, value]) => Number.isFinite(value));
        const lower = points.map(([step]) => [x(step), y(floor.get(step) ?? 0)]);
        const upper = points.map(([step, value]) => {
            floor.set(step, (floor.get(step) ?? 0) + value);
            return [x(step), y(Math.min(1, floor.get(step)))];
        });
        const end = points.findLastIndex(([step]) => step <= chart.drawn.across[1]);
        line.middle = (upper[end]?.[1] + lower[end]?.[1]) / 2;
        line.thick = lower[end]?.[1] - upper[end]?.[1];
        const attributes = { class: `run-${line.run} area`, style: `fill: var(--${line.color})` };
        // A polyline as well, so that an area has a line between it and its neighbour.
        return makeSvg("g", {}, makeSvg("polygon", { ...attributes, points: route([...upper, ...lower.reverse()]) }),
            makeSvg("polyline", { class: `run-${line.run} edge`, points: route(upper) }));
    });
    return [clip(chart, drawn)];
}

let clips = 0;

function clip(chart, parts) {
    const { left, right, height } = chart.drawn;
    clips += 1;
    const frame = { x: left, y: ABOVE - 3, width: Math.max(1, right - left), height: height - BELOW - ABOVE + 6 };
    const path = makeSvg("clipPath", { id: `clip-${clips}` }, makeSvg("rect", frame));
    return makeSvg("g", {}, path, makeSvg("g", { "clip-path": `url(#clip-${clips})` }, ...parts));
}

// Labels at the ends of lines

// A line alone is labelled with its last value, and one of several with its name.
function labelsOf(chart, lines, across, most) {
    const ends = lines.filter(({ label, faint }) => label !== null && !faint).map((line) => {
        const within = line.points.findLast(([step, value]) => inRange(step, across) && Number.isFinite(value));
        const cut = valueAt(line.points, across[1]);
        return { line, last: Number.isFinite(cut) ? [across[1], cut] : within };
    }).filter(({ last }) => last);
    const alone = ends.length === 1;
    return ends.map(({ line, last }) => {
        // A smoothed line has the last value that was measured as its label.
        const measured = chart.series.find(({ run, line: nth }) => run === line.run && nth === line.line);
        const value = view.range ? last[1] : measured.points.findLast(([, value]) => Number.isFinite(value))[1];
        const text = alone && !line.label ? reading(value, chart.unit) : line.label || line.name;
        return { line, value: last[1], text: text.length > most ? `${text.slice(0, most - 1)}…` : text };
    });
}

function labelTexts(chart, labels) {
    const { y, right, height } = chart.drawn;
    const placed = labels.map(({ line, value, text }) => {
        const at = chart.stacked ? line.middle : y(chart.log ? Math.log10(value) : value);
        return { line, text, at, thick: chart.stacked ? line.thick : Infinity };
    }).filter(({ at, thick }) => Number.isFinite(at) && thick > 6).sort((a, b) => a.at - b.at);
    // Labels that would lie on each other are pushed apart, first down and then up from the bottom.
    placed.forEach((label, nth) => {
        if (nth > 0) label.at = Math.max(label.at, placed[nth - 1].at + LINE_HEIGHT);
    });
    let floor = height - BELOW + 4;
    for (const label of placed.toReversed()) {
        label.at = Math.min(label.at, floor);
        floor = label.at - LINE_HEIGHT;
    }
    return placed.map(({ line, text, at }) => {
        const attributes = { class: `label run-${line.run}`, x: right + 7, y: at + 4, style: `fill: var(--${line.color})` };
        return makeSvg("text", attributes, text);
    });
}

// Reading values

function listenTo(chart) {
    const { box } = chart;
    let pressed = null;
    box.addEventListener("pointermove", (event) => {
        readStep(chart, stepUnder(chart, event.clientX), false);
        if (pressed !== null && event.buttons === 1) select(chart, pressed, event.clientX);
    });
    box.addEventListener("dblclick", () => byId("whole").click());
    box.addEventListener("pointerdown", (event) => {
        readStep(chart, stepUnder(chart, event.clientX), false);
        const draws = event.pointerType === "mouse" && event.button === 0;
        pressed = draws ? event.clientX : null;
        if (pressed !== null) box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointerup", (event) => {
        const from = pressed;
        pressed = null;
        chart.cross?.querySelector(".selected")?.remove();
        if (from === null) return;
        if (Math.abs(event.clientX - from) > 8) zoomTo(chart, from, event.clientX);
    });
    box.addEventListener("pointerleave", leaveStep);
    box.addEventListener("blur", leaveStep);
    box.addEventListener("focus", () => {
        if (box.matches(":focus-visible")) readStep(chart, view.step ?? chart.steps.at(-1), true);
    });
    box.addEventListener("keydown", (event) => moveStep(chart, event));
}

function stepAt(chart, clientX) {
    const { left, right, across } = chart.drawn;
    const at = clientX - chart.box.getBoundingClientRect().left;
    return scale([left, right], across)(Math.min(Math.max(at, left), right));
}

function stepUnder(chart, clientX) {
    if (!chart.drawn) return undefined;
    const at = stepAt(chart, clientX);
    const nearer = (one, other) => (Math.abs(other - at) < Math.abs(one - at) ? other : one);
    const shown = chart.steps.filter((step) => inRange(step, chart.drawn.across));
    return shown.reduce(nearer, shown[0]);
}

function select(chart, from, to) {
    chart.cross.querySelector(".selected")?.remove();
    const { left, right, height } = chart.drawn;
    const edge = chart.box.getBoundingClientRect().left;
    const [low, high] = [from - edge, to - edge].sort(byNumber).map((at) => Math.min(Math.max(at, left), right));
    const frame = { class: "selected", x: low, width: high - low, y: ABOVE, height: height - BELOW - ABOVE };
    chart.cross.append(makeSvg("rect", frame));
}

function zoomTo(chart, from, to) {
    const [low, high] = [from, to].map((at) => stepAt(chart, at)).sort(byNumber);
    const range = [Math.round(low), Math.round(high)];
    if (range[1] - range[0] < 1) return;
    view.range = range;
    leaveStep();
    drawAll();
}

function drawAll() {
    for (const chart of charts.values()) drawChart(chart);
    byId("whole").hidden = view.range === null;
}

function moveStep(chart, event) {
    const last = chart.steps.length - 1;
    const found = chart.steps.indexOf(view.step);
    const now = found < 0 ? last : found;
    const goals = {
        ArrowLeft: now - 1,
        ArrowRight: now + 1,
        PageDown: now - 10,
        PageUp: now + 10,
        Home: 0,
        End: last,
    };
    if (event.key === "Escape" && view.range) byId("whole").click();
    else if (event.key === "Escape") leaveStep();
    if (event.key === "Enter") enlarge(chart);
    if (!(event.key in goals) || last < 0) return;
    event.preventDefault();
    const step = chart.steps[Math.min(Math.max(goals[event.key], 0), last)];
    if (inRange(step, chart.drawn.across)) readStep(chart, step, true);
}

// Shows the values of a step, and marks the same step in the other charts.
function readStep(chart, step, spoken) {
    if (step === undefined || !chart.drawn) return;
    view.step = step;
    for (const other of charts.values()) {
        if (other.drawn) markStep(other, step);
        if (other !== chart) other.readout.hidden = true;
    }
    const { x, left, right, width } = chart.drawn;
    const lines = valuesAt(chart, step).map(({ one, name, text }) =>
        make("p", {}, swatch(one), make("span", { class: "name" }, name), make("span", { class: "value" }, text)));
    const at = x(step);
    // Only the keyboard's readings are spoken: a pointer passes too many.
    chart.readout.setAttribute("aria-live", spoken ? "polite" : "off");
    chart.readout.classList.toggle("before", at > (left + right) / 2);
    chart.readout.style.setProperty("--at", `${(100 * at) / width}%`);
    const keys = [...new Set(chart.series.map(({ metric }) => metric))];
    const metrics = make("p", { class: "metric" }, keys.length > 1 ? `${keys[0]}, …` : keys[0]);
    chart.readout.replaceChildren(make("p", { class: "at" }, `Step ${whole.format(step)}`), ...lines, metrics);
    chart.readout.hidden = false;
}

// Returns what there is to read at a step: each line's value, or, of several runs of a recipe, their mean and range.
function valuesAt(chart, step) {
    return setsOf(chart).flatMap((set) => {
        const [one] = set;
        const values = set.map(({ values }) => values.get(step)).filter(Number.isFinite);
        const write = (value) => reading(value, chart.unit);
        if (values.length > 1) {
            const range = `${write(Math.min(...values))} to ${write(Math.max(...values))}`;
            return [{ one, name: one.recipe, text: `${write(sumOf(values) / values.length)} (${range})` }];
        }
        if (values.length === 1) return [{ one, name: one.name, text: write(values[0]) }];
        // Between two evaluations the last one counts.
        const last = one.smooth ? undefined : one.points.findLast(([at, value]) => at < step && Number.isFinite(value));
        return last ? [{ one, name: `${one.name}, step ${whole.format(last[0])}`, text: write(last[1]) }] : [];
    });
}

function markStep(chart, step) {
    const { x, y, across, height } = chart.drawn;
    const place = (value) => y(chart.log ? Math.log10(value) : value);
    const parts = [];
    if (inRange(step, across)) {
        parts.push(makeSvg("line", { x1: x(step), x2: x(step), y1: ABOVE, y2: height - BELOW }));
        for (const { at, color } of chart.stacked ? [] : chart.lines) {
            const cy = place(at.get(step) ?? NaN);
            if (Number.isFinite(cy)) parts.push(makeSvg("circle", { cx: x(step), cy, r: 4, style: `fill: var(--${color})` }));
        }
    }
    chart.cross.replaceChildren(...parts);
}

function leaveStep() {
    view.step = null;
    for (const { cross, readout } of charts.values()) {
        cross?.replaceChildren();
        readout.hidden = true;
    }
}

function swatch({ color, dash }) {
    const line = { x1: 0, x2: 20, y1: 3, y2: 3, style: `stroke: var(--${color})`, "stroke-dasharray": DASHES[dash] };
    return makeSvg("svg", { class: "swatch", viewBox: "0 0 20 6", "aria-hidden": "true" }, makeSvg("line", line));
}

// Says beside each heading what its charts have come to, so that it need not be opened to be read.
function showGists() {
    for (const part of byId("figures").querySelectorAll(".part")) {
        const parts = [...part.querySelectorAll("figure.chart")].slice(0, 3).flatMap(({ id }) => {
            const { title, unit, series } = charts.get(id) ?? { series: [] };
            const last = series[0]?.points.findLast(([, value]) => Number.isFinite(value));
            if (!last) return [];
            const old = last[0] < stepsShown()[1] ? ` at step ${whole.format(last[0])}` : "";
            return [`${title} ${reading(Number(last[1].toPrecision(3)), unit)}${old}`];
        });
        const several = new Set([...charts.values()].flatMap(({ series }) => series.map(({ run }) => run))).size > 1;
        tell(part.querySelector(".gist"), several ? "" : parts.join(" · "));
    }
}

// What the reader chooses

// One button for each recipe, if there are several.
function showLegend() {
    const groups = new Map();
    for (const { series } of charts.values()) {
        for (const one of series) if (one.recipe && !groups.has(one.group)) groups.set(one.group, one);
    }
    byId("legend").hidden = groups.size < 2;
    byId("legend").replaceChildren(...[...groups.values()].map(legendButton));
}

function legendButton(one) {
    const shown = !view.hidden.has(one.group);
    const button = make("button", { type: "button", "aria-pressed": String(shown) }, swatch({ ...one, dash: 0 }), one.recipe);
    button.addEventListener("click", () => {
        const show = view.hidden.delete(one.group);
        if (!show) view.hidden.add(one.group);
        button.setAttribute("aria-pressed", String(show));
        drawAll();
    });
    return button;
}

function showTools() {
    byId("tools").hidden = charts.size === 0;
    const smooth = byId("smooth");
    smooth.value = String(smoothing());
    smooth.onchange = () => {
        view.smooth = Number(smooth.value);
        drawAll();
    };
    byId("wanted").oninput = find;
    byId("whole").hidden = view.range === null;
    byId("whole").onclick = () => {
        view.range = null;
        drawAll();
    };
}

// Shows only the charts whose title or metrics have what is looked for, and opens their parts.
function find() {
    const wanted = byId("wanted").value.trim().toLowerCase();
    const parts = [...byId("figures").querySelectorAll(".part")];
    if (wanted) view.open ??= parts.filter(({ open }) => open).map(({ id }) => id);
    for (const { figure, title, series } of charts.values()) {
        const words = [title, ...series.map(({ metric }) => metric)].join("\n").toLowerCase();
        figure.hidden = !words.includes(wanted);
    }
    for (const part of parts) {
        part.hidden = !part.querySelector("figure.chart:not([hidden])");
        if (wanted) part.open = !part.hidden;
        else if (view.open) part.open = view.open.includes(part.id);
    }
    if (!wanted) view.open = null;
    byId("missing").hidden = [...charts.values()].some(({ figure }) => !figure.hidden) || charts.size === 0;
    arrange();
}

// Saves the numbers of a chart, as far as the page has them, with a column for each line.
function save({ steps, series, figure }) {
    const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const shown = series.filter(({ group }) => !view.hidden.has(group));
    const head = ["step", ...shown.map(({ name, metric, recipe }) => cell(recipe ? `${name} ${metric}` : metric))];
    const rows = steps.map((step) => [step, ...shown.map(({ values }) => values.get(step) ?? "")]);
    const text = [head, ...rows].map((row) => `${row.join(",")}\n`).join("");
    const link = make("a", { href: `data:text/csv;charset=utf-8,${encodeURIComponent(text)}`, download: `${figure.id}.csv` });
    link.click();
}
