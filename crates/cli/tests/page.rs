//! A run's page as a browser shows it: the report, and the page of `firebrick watch --web`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "the page's times are told to whoever asks for them")]

mod browser;
mod scratch;
mod watching;

use std::{
    env, fs,
    net::TcpStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use browser::Browser;
use rusqlite::Connection;
use scratch::{Scratch, repository};
use watching::{host, nobody_else_is_answered, watch};

/// A text that a model may write, and that a page must neither obey nor hide.
const HOSTILE: &str = "<script>document.title='owned'</script>\u{1b}[31mred\u{1}\u{202e}done";

/// How the page has to show the hostile text.
const SHOWN: &str = "<script>document.title='owned'</script>␛[31mred␁‹U+202E›done";

/// A run's folder can have any name.
const NAME: &str = "<b>page & 'more'";

#[test]
fn a_report_is_read_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    scratch.train_tiny("page", &["record.tokens_every=1"]).success();
    let folder = format!("runs/{NAME}");
    fs::rename(scratch.path("runs/page"), scratch.path(&folder)).unwrap();
    let store = Connection::open(scratch.path(&folder).join("run.db")).unwrap();
    write_what_is_hostile(&store);
    scratch.succeed(&["report", &folder, "--out", "report.html"]);
    let report = format!("file://{}", scratch.path("report.html").display());

    browser.size(1280, 900, 1);
    browser.prefer("light");
    browser.open(&report);
    filters_find_what_the_database_has(&mut browser, &store);
    curves_are_drawn_and_read(&mut browser, &store);
    hostile_texts_are_shown_and_not_obeyed(&mut browser, &report, &store);
    links_open_what_they_were_taken_from(&mut browser, &report, &store);
    tokens_are_shaded(&mut browser, &report, &store);
    // The completion that `tokens_are_shaded` opened is still open.
    the_page_fits_a_phone_and_a_dark_room(&mut browser);

    assert_eq!(browser.errors(), [""; 0]);
    let elsewhere = |address: &&String| {
        !["file:", "data:", "about:"].iter().any(|own| address.starts_with(own))
    };
    assert_eq!(browser.requests().iter().find(elsewhere), None, "a report asks nobody");
    // The report is not allowed to ask either.
    let asked = browser.js("fetch('https://example.org').then(() => 'asked', () => 'refused')");
    assert_eq!(asked, "refused");
    let refusal = browser.errors().concat();
    assert!(refusal.contains("Content Security Policy"), "{refusal}");
}

/// Writes hostile texts into a group. If tokens are kept, the page shows those, so the tokens of the group are
/// deleted.
fn write_what_is_hostile(store: &Connection) {
    let group: i64 = store
        .query_row(
            "SELECT group_id FROM groups WHERE source = 'train' AND status <> 'kept'",
            [],
            |row| row.get(0),
        )
        .unwrap();

    let text = "UPDATE completions SET text = ?2 WHERE group_id = ?1 AND completion = 1";
    assert_eq!(store.execute(text, (group, HOSTILE)).unwrap(), 1);
    let prompt = "UPDATE groups SET prompt = ?2, reference = ?2 WHERE group_id = ?1";
    assert_eq!(
        store.execute(prompt, (group, "<img src=x onerror=\"document.title='owned'\">")).unwrap(),
        1
    );
    assert_eq!(store.execute("DELETE FROM sampled WHERE group_id = ?1", [group]).unwrap(), 1);
}

/// Counts the completions for which a condition is true.
fn count(store: &Connection, condition: &str) -> u64 {
    let sql =
        format!("SELECT count(*) FROM completions JOIN groups USING (group_id) WHERE {condition}");
    store.query_row(&sql, [], |row| row.get::<_, u32>(0)).unwrap().into()
}

/// Checks that the page has found as many completions as the database has for the condition.
#[track_caller]
fn found(browser: &mut Browser, store: &Connection, condition: &str) {
    let (found, all) = (count(store, condition), count(store, "true"));
    assert!(all < 1000, "the page puts a comma into {all}");
    browser.wait(
        "document.querySelector('#count').textContent",
        format!("{found} of {all} completions"),
    );
    let rows = browser.js("document.querySelectorAll('#rows > tr[data-row]').length");
    assert_eq!(rows, found.min(100));
}

fn filters_find_what_the_database_has(browser: &mut Browser, store: &Connection) {
    found(browser, store, "true");
    browser.click("#verdicts [value=right]");
    found(browser, store, "verdict = 'right'");
    let shown = "[...new Set([...document.querySelectorAll('#rows .badge')].map((it) => it.dataset.verdict))].join()";
    assert_eq!(browser.js(shown), "right");

    browser.click("#verdicts [value=wrong]");
    found(browser, store, "verdict IN ('right', 'wrong')");

    for (nth, step) in [(0, "2"), (1, "5")] {
        browser.js(&format!("document.querySelectorAll('[name=step]')[{nth}].focus()"));
        browser.write(step);
    }

    let condition = "verdict IN ('right', 'wrong') AND step BETWEEN 2 AND 5";
    found(browser, store, condition);

    // The filters are in the address.
    browser.reload();
    found(browser, store, condition);

    browser.click("#filters [type=reset]");
    found(browser, store, "true");
}

fn curves_are_drawn_and_read(browser: &mut Browser, store: &Connection) {
    // What is folded is drawn once it is opened.
    browser.js("document.querySelectorAll('.part').forEach((part) => (part.open = true))");
    let drawn = "[...document.querySelectorAll('figure.chart')].filter((figure) => {
        const line = figure.querySelector('svg polyline.run-0');
        if (!line?.checkVisibility()) return false;
        const { stroke, strokeWidth } = getComputedStyle(line);
        const empty = ['none', getComputedStyle(figure).backgroundColor].includes(stroke);
        return !empty && parseFloat(strokeWidth) > 0 && line.getBoundingClientRect().width > 100;
    }).length";
    browser.wait(&format!("{drawn} >= 8"), true);
    let held = "document.querySelectorAll('#chart-heldout svg polygon.run-0').length";
    assert_eq!(browser.js(held), 1, "the band around the held-out accuracy");

    let shown = browser.text("document.querySelector('.tile strong').textContent");
    let sql =
        "SELECT value FROM metrics WHERE name = 'eval/heldout_accuracy' ORDER BY step DESC LIMIT 1";
    let accuracy: f64 = store.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(shown, format!("{:.1}\u{a0}%", 100.0 * accuracy));

    // The keys choose the last step but one.
    browser.js("document.querySelector('#chart-reward .plot').focus()");
    browser.press("End");
    browser.press("ArrowLeft");
    let readout = "document.querySelector('#chart-reward .readout')";
    browser.wait(&format!("{readout}.querySelector('.at').textContent"), "Step 5");
    let read = browser.text(&format!("{readout}.querySelector('.value').textContent"));
    let sql = "SELECT value FROM metrics WHERE name = 'reward/mean' AND step = 5";
    same_number(&read, store.query_row(sql, [], |row| row.get(0)).unwrap());
}

fn hostile_texts_are_shown_and_not_obeyed(browser: &mut Browser, report: &str, store: &Connection) {
    browser.open(report);
    found(browser, store, "true");
    let scripts = browser.js("document.scripts.length");

    browser.press("/");
    // The search finds small letters by capitals.
    browser.write("SCRIPT>DOCUMENT.TITLE");
    found(browser, store, "text LIKE '<script>document.title%'");

    browser.js("document.querySelector('#rows button').focus()");
    browser.press("Enter");
    browser.wait(&quote("Completion"), SHOWN);
    assert_eq!(browser.js(&quote("Prompt")), "<img src=x onerror=\"document.title='owned'\">");
    assert_eq!(browser.js("document.scripts.length"), scripts);

    assert_eq!(
        browser.js("document.querySelectorAll('#rows script, #rows img, header b, pre b').length"),
        0
    );
    assert_eq!(browser.js("document.title"), NAME);
    assert_eq!(browser.js("document.querySelector('h1').textContent"), NAME);

    browser.press("Escape");
    browser.wait("document.querySelectorAll('.panel').length", 0);
}

/// Makes the script that reads a text in the panel of the open completion.
fn quote(label: &str) -> String {
    format!("document.querySelector('.panel .quote[aria-label={label}]')?.textContent")
}

/// Script that reads the link of the open completion.
const LINK: &str = "document.querySelector('.panel p > a')?.getAttribute('href')";

fn links_open_what_they_were_taken_from(browser: &mut Browser, report: &str, store: &Connection) {
    for source in ["train", "heldout"] {
        // This is the last completion of a page, so that other groups of its step come before it.
        browser.open(&format!("{report}#completions?source={source}&step=6-"));
        found(browser, store, &format!("source = '{source}' AND step >= 6"));
        // Equal answers of a group are one row, so the last row may be hidden.
        browser.js(
            "[...document.querySelectorAll('#rows > tr:not([hidden]) .verdict')].at(-1).click()",
        );
        browser.wait(&format!("typeof {LINK}"), "string");
        let link = browser.text(LINK);
        let (prompt, text) = (browser.text(&quote("Prompt")), browser.text(&quote("Completion")));

        browser.open(&format!("{report}{link}"));
        browser.wait(LINK, &link[..]);
        browser.reload();
        browser.wait(LINK, &link[..]);

        assert_eq!(
            (browser.text(&quote("Prompt")), browser.text(&quote("Completion"))),
            (prompt, text),
            "{link}"
        );
        assert_eq!(browser.js("document.querySelector('#trouble').hidden"), true);
    }
}

fn tokens_are_shaded(browser: &mut Browser, report: &str, store: &Connection) {
    browser.open(&format!("{report}#completions?sort=longest&status=kept"));
    found(browser, store, "status = 'kept'");
    browser.click("#rows > tr:first-child .source");
    browser.wait("document.querySelector('.shade select')?.value", "nothing");
    for shade in ["log-probability", "ratio", "entropy"] {
        browser.js(&shade_by(shade));
        let legend = "document.querySelector('.panel .scale').checkVisibility()";
        assert_eq!(browser.js(legend), true, "{shade}");
        // All ratios of a step's first update are 1.
        let colours = "new Set([...document.querySelectorAll('.panel .piece')].map((it) =>
            getComputedStyle(it).backgroundColor)).size > 1";
        assert!(shade == "ratio" || browser.js(colours) == true, "{shade} has one colour");
    }

    let cell =
        |name| format!("document.querySelector('#rows > tr > [data-label={name}]').textContent");
    let (text, pieces) = (browser.text(&cell("Completion")), browser.text(&quote("Completion")));
    assert!(pieces.starts_with(&text), "the tokens make {pieces}, and the text is {text}");

    let link = browser.text(LINK);
    let path: Vec<&str> = link.split('/').skip(3).collect();
    let sql = "SELECT advantage FROM trained JOIN groups USING (group_id) \
               WHERE source = 'train' AND step = ?1 AND draw = ?2 AND completion = ?3";
    let advantage = store.query_row(sql, [path[0], path[1], path[2]], |row| row.get(0)).unwrap();
    same_number(&browser.text(&cell("Advantage")), advantage);
}

/// Makes the script that chooses what the tokens of the open completion are shaded by.
fn shade_by(name: &str) -> String {
    format!(
        "(() => {{ const select = document.querySelector('.shade select');
           select.value = '{name}'; select.dispatchEvent(new Event('change')); }})()"
    )
}

/// Checks that a number, which the page writes in four digits, is `value`.
#[track_caller]
fn same_number(shown: &str, value: f64) {
    let number: f64 = shown.replace('−', "-").parse().unwrap();
    assert!((number - value).abs() <= 1e-3 * value.abs(), "{shown} is not {value}");
}

fn the_page_fits_a_phone_and_a_dark_room(browser: &mut Browser) {
    let colours =
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
                    getComputedStyle(document.querySelector('#figures svg text')).fill].join(' ')";
    let light = browser.text(colours);
    browser.prefer("dark");
    let dark = browser.text(colours);
    let of = |text: &str| text.split(") ").map(str::to_owned).collect::<Vec<_>>();
    assert!(
        of(&light).iter().zip(of(&dark)).all(|(light, dark)| *light != dark),
        "{light} and {dark}"
    );

    for width in [320, 390] {
        browser.size(width, 844, 2);
        browser.wait("innerWidth", width);
        assert_eq!(browser.js("document.documentElement.scrollWidth"), width);
    }
}

#[test]
fn runs_of_a_recipe_are_seen_together() {
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    for (name, set) in [("a-seed1", "seed=1"), ("a-seed2", "seed=2"), ("b", "optim.lr=2e-3")] {
        scratch.train_tiny(name, &[set]).success();
    }
    let runs = ["runs/a-seed1", "runs/a-seed2", "runs/b"];
    scratch.succeed(&[&["report"], &runs[..], &["--out", "report.html"]].concat());

    browser.size(1280, 900, 1);
    browser.open(&format!("file://{}", scratch.path("report.html").display()));
    let texts = |selector: &str| {
        format!(
            "[...document.querySelectorAll('{selector}')].map((it) => it.textContent).join(' ')"
        )
    };
    browser.wait(&texts("#legend button"), "a b");
    assert_eq!(browser.js(&texts(".recipes tbody th")), "a b");
    assert_eq!(browser.js(&texts(".recipes tbody td:first-of-type")), "2 1");
    assert_eq!(browser.js(&texts(".differences tbody th")), "optim.lr");

    // The two runs are thin, and their mean, the band around it and the other recipe are not.
    let drawn = "['.faint', ':not(.faint)'].map((kind) =>
        document.querySelectorAll(`#chart-reward polyline${kind}`).length).join()";
    browser.wait(drawn, "2,2");
    assert_eq!(browser.js("document.querySelectorAll('#chart-reward polygon').length"), 1);
    browser.click("#legend button");
    browser.wait(drawn, "0,1");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_page_follows_a_run_and_nobody_else() {
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    scratch.train_tiny("going", &[]).success();
    let store = Connection::open(scratch.path("runs/going/run.db")).unwrap();
    // A run that is running has not ended.
    store.execute("DELETE FROM info WHERE key = 'ended'", []).unwrap();
    let (mut watching, address) = watch(&scratch, "runs/going");

    browser.open(&address);
    found(&mut browser, &store, "true");
    let last = "JSON.parse(document.querySelector('#chart-reward').dataset.chart).series[0].points.at(-1)[0]";
    assert_eq!(browser.js(last), 6);
    browser.click("#chart-reward .about summary");

    take_a_step(&store);

    let began = Instant::now();
    browser.wait(last, 7);
    found(&mut browser, &store, "true");

    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "the page took {took:?} to follow");
    assert_eq!(browser.js("document.querySelector('#chart-reward .about').open"), true);
    browser.wait("document.querySelector('#status').textContent", "step 7 of 6");

    // An evaluation comes after the numbers of its step.
    let evaluated = "INSERT INTO metrics VALUES (7, 'eval/heldout_accuracy', 0.625)";
    store.execute(evaluated, []).unwrap();
    let accuracy = "JSON.parse(document.querySelector('#chart-heldout').dataset.chart).series[0].points.at(-1)[1]";
    browser.wait(accuracy, 0.625);

    store.execute("INSERT INTO info VALUES ('ended', 'steps')", []).unwrap();
    browser.wait(
        "document.querySelector('#status').textContent",
        "finished at step 7 of 6: all its steps are done",
    );
    assert_eq!(browser.errors(), [""; 0]);

    nobody_else_is_answered(&address);
    // A client that never asks anything does not keep the server from ending.
    let idle = TcpStream::connect(host(&address)).unwrap();
    watching.interrupt();
    assert_eq!(watching.end(), Some(0));
    drop(idle);
    let ended = "The watcher has ended; the page shows the last state that it saw.";
    browser.wait("document.querySelector('#status').textContent", ended);
}

/// Writes a further step like the last one into the run's database, as a going run does.
fn take_a_step(store: &Connection) {
    let step = "BEGIN;
        INSERT INTO metrics SELECT step + 1, name, value FROM metrics WHERE step = 6 AND name NOT LIKE 'eval/%';
        INSERT INTO groups (source, step, draw, policy_step, prompt_id, prompt, reference, spread, status)
            SELECT source, step + 1, draw, policy_step, prompt_id, prompt, reference, spread, status
            FROM groups WHERE step = 6 AND source = 'train';
        INSERT INTO completions (group_id, completion, text, tokens, finish, verdict, extracted, reward, in_loss)
            SELECT new.group_id, completion, text, tokens, finish, verdict, extracted, reward, in_loss
            FROM completions JOIN groups AS old USING (group_id)
            JOIN groups AS new ON new.step = 7 AND new.draw = old.draw WHERE old.step = 6 AND old.source = 'train';
        COMMIT;";
    store.execute_batch(step).unwrap();
}

/// Returns the folder that an environment variable names, relative to the repository's root.
fn named(variable: &str) -> PathBuf {
    let path = env::var(variable).unwrap_or_else(|_| panic!("{variable} names a folder"));
    Path::new(&repository("")).join(path)
}

/// Writes the report of the run in FIREBRICK_SHOTS into `scratch`.
fn report_of_a_run(scratch: &Scratch) -> String {
    let run = named("FIREBRICK_SHOTS");
    scratch.succeed(&["report", run.to_str().unwrap(), "--out", "report.html"]);
    format!("file://{}", scratch.path("report.html").display())
}

/// Measures how long a browser takes to read the report, for the book's page on watching.
#[test]
#[ignore = "takes the time of a page"]
fn times_of_a_report_are_printed() {
    let mut browser = Browser::start().expect("a browser reads the page");
    let scratch = Scratch::new();
    let began = Instant::now();
    let report = report_of_a_run(&scratch);
    let tell = |what: &str, milliseconds: f64| eprintln!("{what:<24} {milliseconds:>8.0} ms");
    tell("report written", began.elapsed().as_secs_f64() * 1e3);
    let bytes = fs::metadata(scratch.path("report.html")).unwrap().len();
    eprintln!("report's size            {bytes:>8} bytes");

    let began = Instant::now();
    browser.open(&report);
    browser.wait("document.querySelectorAll('#rows td.step').length > 0", true);
    tell("opened, rows shown", began.elapsed().as_secs_f64() * 1e3);
    eprintln!("{}", browser.js("document.querySelector('#count').textContent"));

    let search = |words: &str| {
        format!(
            "const q = document.querySelector('[name=q]'); q.value = '{words}'; q.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        )
    };
    for (what, act) in [
        ("a filter", "document.querySelector('[name=verdict]').click()".to_owned()),
        ("the filter taken away", "document.querySelector('[name=verdict]').click()".to_owned()),
        ("the first search", search("5+8")),
        ("another search", search("9+9")),
    ] {
        let timed = format!(
            "(async () => {{
                const count = document.querySelector('#count'), before = count.textContent;
                const began = performance.now();
                {act};
                while (count.textContent === before || !document.querySelector('#progress').hidden) {{
                    await new Promise(requestAnimationFrame);
                }}
                return performance.now() - began;
            }})()"
        );
        tell(what, browser.js(&timed).as_f64().unwrap());
    }
    assert_eq!(browser.errors(), [""; 0]);
}

/// Takes pictures of the run in FIREBRICK_SHOTS, into the folder FIREBRICK_SHOTS_TO.
#[test]
#[ignore = "writes screenshots"]
fn pictures_of_a_report_are_taken() {
    let to = named("FIREBRICK_SHOTS_TO");
    let mut browser = Browser::start().expect("a browser takes the pictures");
    let scratch = Scratch::new();
    let report = report_of_a_run(&scratch);
    fs::create_dir_all(&to).unwrap();

    browser.prefer("light");
    for (name, width, height, scale) in [("desktop", 1280, 900, 1), ("phone", 390, 844, 2)] {
        browser.size(width, height, scale);
        browser.open(&report);
        browser.wait("document.querySelectorAll('#rows td.step').length > 0", true);
        fs::write(to.join(format!("{name}-top.png")), browser.picture()).unwrap();

        browser.open(&format!("{report}#completions?status=kept"));
        browser.wait("document.querySelector('[name=status]').value", "kept");
        browser.click("#rows > tr:first-child .source");
        browser.wait("document.querySelectorAll('.panel').length", 1);

        // If the run kept no tokens, there is nothing to choose.
        browser.js(&format!("document.querySelector('.shade') && {}", shade_by("entropy")));
        browser.js("document.querySelector('#rows > tr').scrollIntoView({ behavior: 'instant' })");
        fs::write(to.join(format!("{name}-completion.png")), browser.picture()).unwrap();
    }

    assert_eq!(browser.errors(), [""; 0]);
}
