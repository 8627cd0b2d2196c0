//! Templates that were written to do harm are refused, quickly and with little memory.
//!
//! The test has a binary of its own, because it measures the memory of the whole process.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    time::{Duration, Instant},
};

use firebrick_data::ChatTemplate;
use serde_json::{Map, json};

/// Limit on the time of a template. This is generous: most take milliseconds, in a release build.
const TIME: Duration = Duration::from_secs(20);
/// Limit on memory, in kB. A text of 100 MB is the largest single thing that the interpreter itself allows.
const MEMORY: u64 = 600_000;

/// Reasons that count. A template that fails for another reason shows nothing.
const REASONS: [&str; 6] = [
    "makes more than any conversation",
    "ran for more than",
    "syntax error",
    "recursion limit",
    "too many elements",
    "should be a number or a text of at most 64",
];

#[test]
fn hostile_templates_are_refused_in_bounded_time_and_memory() {
    let loops = |body: &str| {
        format!(
            "{{% set ns = namespace(x='abcdefgh', y=[1, 2]) %}}{{% for i in range(100000) %}}\
             {{% for j in range(100000) %}}{body}{{% endfor %}}{{% endfor %}}"
        )
    };
    let straight = "{% set x = x ~ x %}".repeat(60);

    let cases = [
        ("loops", loops("")),
        ("doubling", loops("{% set ns.x = ns.x ~ ns.x %}")),
        ("doubling by +", loops("{% set ns.x = ns.x + ns.x %}")),
        ("doubling without a loop", format!("{{% set x = 'ab' %}}{straight}{{{{ x }}}}")),
        ("doubling a list", loops("{% set ns.y = ns.y + ns.y %}")),
        ("doubling by nesting", loops("{% set ns.y = [ns.y, ns.y] %}")),
        ("doubling an object", loops("{% set ns.y = {'a': ns.y, 'b': ns.y} %}")),
        ("doubling by *", loops("{% set ns.x = ns.x * 2 %}")),
        (
            "doubling by capture",
            loops("{% set t %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = t %}"),
        ),
        ("doubling by join", loops("{% set ns.x = [ns.x, ns.x] | join %}")),
        ("squaring by join", loops("{% set ns.x = ns.x | join(ns.x) %}")),
        ("squaring by replace", loops("{% set ns.x = ns.x | replace('a', ns.x) %}")),
        ("squaring by a method", loops("{% set ns.x = ns.x.replace('a', ns.x) %}")),
        ("squaring by join, a method", loops("{% set ns.x = ns.x.join([ns.x, ns.x, ns.x]) %}")),
        ("squaring by map", loops("{% set ns.x = ns.x | map('replace', 'a', ns.x) | join %}")),
        ("growing by format", loops("{% set ns.x = '{} {}'.format(ns.x, ns.x) %}")),
        ("keeping much", loops("{% set ns.y = ns.y + ['x' * 1000 * 900] %}")),
        ("keeping lists of characters", loops("{% set ns.y = ns.y + [('x' * 900) | list] %}")),
        ("writing much", loops("{{ ns.x * 900 }}")),
        ("writing itself", loops(&"raw text ".repeat(1000))),
        ("capturing itself", format!("{{% set t %}}{}{{% endset %}}", loops(&"raw ".repeat(1000)))),
        ("nesting deep", loops("{% set ns.y = [ns.y] %}")),
        ("a namespace in itself", loops("{% set ns.x = ns %}{{ ns }}")),
        ("namespaces in a chain", loops("{% set n = namespace(x=ns) %}{% set ns.x = n %}")),
        ("a long product", "{{ 'x' * 1000000000000 }}".into()),
        ("products of constants", "{{ 'x' * 1000 * 1000 * 1000 }}".into()),
        ("a variable product", "{% set n = 100000000 %}{% set x = 'x' * n %}{{ x ~ x }}".into()),
        ("a long list", "{% set n = 100000000 %}{{ ([1] * n) | list }}".into()),
        ("a long range", "{{ range(10 ** 12) | list }}".into()),
        ("a wide indent", "{{ messages | tojson(indent=10 ** 9) }}".into()),
        ("a wide indent of text", "{{ 'a\\nb' | indent(10 ** 9) }}".into()),
        ("a wide format", "{{ '{:1000000000d}'.format(1) }}".into()),
        ("a wide printf", "{{ '%1000000000d' | format(1) }}".into()),
        ("recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into()),
        (
            "recursion that doubles",
            "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}".into(),
        ),
        (
            "recursion in a loop",
            "{% for x in [['ab']] recursive %}{{ loop([x ~ x]) }}{% endfor %}".into(),
        ),
        ("an include", "{% include 'default' %}".into()),
        ("a deep sum", format!("{{{{ 0{} }}}}", " + 1".repeat(60_000))),
        ("deep brackets", format!("{{{{ {}1{} }}}}", "(".repeat(60_000), ")".repeat(60_000))),
        ("deep loops", "{% for i in [1] %}".repeat(10_000)),
        ("many branches", format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(20_000))),
        ("a huge source", "x".repeat(100 << 20)),
        (
            "comparing",
            loops("{% set ns.x = (ns.x ~ ns.x)[:3000000] %}{% if ns.x == ns.x ~ '' %}{% endif %}"),
        ),
        (
            "searching",
            loops("{% set ns.x = (ns.x ~ ns.x)[:3000000] %}{% if 'zz' in ns.x %}{% endif %}"),
        ),
        ("indexing", loops("{% set ns.x = (ns.x ~ ns.x)[:3000000] %}{% set c = ns.x[-1] %}")),
        ("counting", loops("{% set ns.x = (ns.x ~ ns.x)[:3000000] %}{% set c = ns.x | length %}")),
        ("slicing", loops("{% set ns.x = (ns.x ~ ns.x)[:3000000] %}{% set c = ns.x[:1] %}")),
    ];

    let before = peak();
    for (name, source) in cases {
        let began = Instant::now();
        let rendered = ChatTemplate::new(&source, Map::new()).and_then(|template| {
            template.render(&json!([{"role": "user", "content": "hi"}]), true, &Map::new())
        });

        let problem = rendered.map(|text| text.len()).unwrap_err().to_string();
        let (took, memory) = (began.elapsed(), peak().zip(before).map(|(now, then)| now - then));

        assert!(REASONS.iter().any(|reason| problem.contains(reason)), "{name}: {problem}");
        assert!(took < TIME, "{name} took {took:.1?}");
        assert!(memory.is_none_or(|memory| memory < MEMORY), "{name} needed {memory:?} kB");
    }
}

/// Returns the most memory that this process has had, in kB, if the system says so.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
