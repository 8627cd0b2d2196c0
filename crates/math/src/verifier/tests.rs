//! Tests of the whole verifier: which answers are the same, and which are not.

use super::*;

fn judge(gold: &str, response: &str) -> Judgement {
    Verifier::default().judge(gold, response)
}

#[test]
fn what_counts_as_the_same() {
    for (gold, response) in [
        ("5", "$\\boxed{5.}$"),
        ("5", "**Answer:** 5.0"),
        ("-3", "The answer is −3."),
        ("1234567", "$1{,}234{,}567$"),
        ("0.5", "\\boxed{\\frac12}"),
        ("\\frac{1}{3}", "Answer: 0.333333"),
        ("\\frac{7}{3}", "\\boxed{2\\frac13}"),
        ("12", "\\boxed{12\\text{ apples}}"),
        ("12", "Answer: 12 apples"),
        ("\\$18.50", "Answer: 18.5 dollars"),
        ("150\\text{ cm}", "\\boxed{1.5\\text{ m}}"),
        ("25\\%", "Answer: 1/4"),
        ("90^\\circ", "\\boxed{90}"),
        ("\\frac{\\pi}{2}", "\\boxed{90^\\circ}"),
        ("30^\\circ", "\\boxed{\\frac\\pi6}"),
        ("3.5", "\\boxed{3{,}5}"),
        ("3", "\\boxed{3\\text{ pairs}}"),
        ("1.2\\times10^{5}", "\\boxed{120000}"),
        ("10^{-12}", "\\boxed{10⁻¹²}"),
        ("0.005", "\\boxed{5 x 10⁻³}"),
        ("x^{-10}", "\\boxed{x⁻¹⁰}"),
        ("\\text{yes}", "$\\boxed\\text{yes}$"),
        ("3e8", "\\boxed{3\\cdot10^8}"),
        ("0.1\\overline{6}", "\\boxed{\\frac16}"),
        ("\\sqrt{12}", "\\boxed{2\\sqrt3}"),
        ("\\frac{1}{\\sqrt2}", "\\boxed{\\frac{\\sqrt{2}}{2}}"),
        ("\\sqrt{5+2\\sqrt6}", "\\boxed{\\sqrt2+\\sqrt3}"),
        ("\\log_2 32", "\\boxed{5}"),
        ("\\frac{\\ln 8}{\\ln 2}", "\\boxed{3}"),
        ("\\sin 30^\\circ", "\\boxed{\\frac12}"),
        ("e^{i\\pi}", "\\boxed{-1}"),
        ("i^2", "\\boxed{-1}"),
        ("(1+i)^2", "\\boxed{2i}"),
        ("x^2-1", "\\boxed{(x-1)(x+1)}"),
        ("\\frac{x^2-1}{x-1}", "\\boxed{x+1}"),
        ("\\sin^2 x+\\cos^2 x", "\\boxed{1}"),
        ("2^{n+1}", "\\boxed{2\\cdot2^n}"),
        ("\\frac{n(n+1)}{2}", "\\boxed{\\frac{n^2+n}{2}}"),
        ("\\binom{n}{2}", "\\boxed{\\frac{n(n-1)}{2}}"),
        ("n!", "\\boxed{n\\cdot(n-1)!}"),
        ("\\sum_{k=1}^{10}k^2", "\\boxed{385}"),
        ("5", "\\boxed{x=5}"),
        ("x=5", "\\boxed{5}"),
        ("5", "\\boxed{5=x}"),
        ("AB=12", "\\boxed{12}"),
        ("(p,q)=(3,2)", "\\boxed{(3,2)}"),
        ("x=1,y=2", "\\boxed{y=2,x=1}"),
        ("1,-2", "\\boxed{-2}\\text{ and }\\boxed{1}"),
        ("\\pm3", "\\boxed{3,-3}"),
        ("x=2\\pm\\sqrt3", "\\boxed{2+\\sqrt3, 2-\\sqrt3}"),
        ("\\{1,2,3\\}", "\\boxed{3,2,1}"),
        ("(1,2,3)", "\\boxed{[1,2,3]}"),
        ("(1,2)", "\\boxed{\\begin{pmatrix}1\\\\2\\end{pmatrix}}"),
        ("y=2x+1", "\\boxed{2x-y+1=0}"),
        ("x^2+y^2=4", "\\boxed{2x^2+2y^2-8=0}"),
        ("x>3", "\\boxed{(3,\\infty)}"),
        ("x\\le2", "\\boxed{-x\\ge-2}"),
        ("-1<x\\le4", "\\boxed{x\\in(-1,4]}"),
        ("(-\\infty,1)\\cup(1,\\infty)", "\\boxed{x\\ne1}"),
        ("\\mathbb{R}", "\\boxed{(-\\infty,\\infty)}"),
        ("x^2<4", "\\boxed{-2<x<2}"),
        ("(-\\infty,-1]\\cup[3,\\infty)", "\\boxed{-x^2+2x+3\\le0}"),
        ("-2<x<4", "\\boxed{|x-1|<3}"),
        ("|x|\\ge2", "\\boxed{x\\le-2\\text{ or }x\\ge2}"),
        ("(1,3)", "\\boxed{x>1\\text{ and }x<3}"),
        ("\\mathbb{R}\\setminus\\{1,2\\}", "\\boxed{x\\ne1,x\\ne2}"),
        ("\\mathbb R", "\\boxed{\\Bbb{R}}"),
        ("60", "\\boxed{5\\text{ dozen}}"),
        ("72", "\\boxed{72}"),
        ("She sold 48/2 = 24 clips.\n#### 72", "\\boxed{72}"),
        ("[1,3]", "\\boxed{[1,2]\\cup[2,3]}"),
        ("\\emptyset", "\\boxed{\\varnothing}"),
        ("3:4", "\\boxed{3 : 4}"),
        ("325_6", "\\boxed{325_{6}}"),
        ("\\text{odd}", "\\boxed{Odd}"),
        ("\\text{no solution}", "Answer: No solution"),
        ("B", "\\boxed{\\text{(B)}}"),
        ("C", "The answer is (C)."),
        ("2+2", "\\boxed{2+2=4}"),
        ("\\infty", "\\boxed{+\\infty}"),
        ("1000000!", "\\boxed{1000000!}"),
        ("\\frac{1}{100!}", "\\boxed{\\frac{101}{101!}}"),
        ("10^{500}\\bmod 7", "\\boxed{2}"),
        ("f(x)=x^2", "\\boxed{x^2}"),
        ("230", "$$\\text{Total} = 230$$"),
        ("54", "Hence 3 more.\n#### ５４\n\nThis took 3 steps."),
        ("120", "#### $\\dfrac{360}{3}$\n\nShall we try 2 more?"),
        ("40", "So 41.\n#### $\\text{40}$"),
        ("\\sqrt{1/n}", "\\boxed{\\frac{1}{\\sqrt n}}"),
        ("7:30\\text{ PM}", "\\boxed{7:30\\text{ pm}}"),
        ("n\\equiv1\\pmod3", "\\boxed{n\\equiv-2\\pmod{3}}"),
        ("352", "\\boxed{352\\text{ ordered pairs}}"),
        ("5in+n", "\\boxed{n+5ni}"),
        ("2\\pm\\sqrt5", "\\boxed{2\\pmsqrt{5}}"),
        ("\\text{Alice and Bob}", "\\boxed{\\text{Bob and Alice}}"),
        ("0.12345648", "\\boxed{0.1234565}"),
        ("8\\sqrt2", "\\boxed{11.3137085}"),
        ("y=3", "\\boxed{x=3}"),
        ("y=2x", "\\boxed{x=\\frac y2}"),
        ("f(x)=x^2", "\\boxed{y=x^2}"),
        ("f(x)=2x", "\\boxed{f(t)=2t}"),
        ("f(x,y)=x-y", "\\boxed{f(y,x)=y-x}"),
        ("f(k)=\\sum_{n=1}^{k}n^2", "\\boxed{f(n)=\\sum_{k=1}^{n}k^2}"),
        ("a_n=n+1", "\\boxed{a_k=k+1}"),
        ("a_n=a_{n-1}+b_n", "\\boxed{a_k=a_{k-1}+b_k}"),
        ("4", "\\boxed{-1\\bmod5}"),
        ("4", "\\boxed{4=-1\\bmod5}"),
        ("4\\pmod5", "\\boxed{-1\\pmod5}"),
        ("4", "\\boxed{-2\\cdot3\\mod5}"),
        ("9", "\\boxed{7+5\\bmod3}"),
        ("-2", "\\boxed{-(7\\bmod5)}"),
        ("6", "\\boxed{7-6\\bmod5}"),
        ("5", "\\boxed{\\textbf{(B)}\\ 5}"),
        ("5", "\\boxed{\\text{(B) } 5}"),
        ("5", "\\boxed{\\text{(B) 5}}"),
        ("5", "\\boxed{\\text{B: } 5}"),
        ("5", "\\boxed{\\text{B. 5}}"),
        ("5", "\\boxed{(B) 5}"),
        ("x+1", "\\boxed{\\textbf{(B)}\\ x+1}"),
        ("(1,2)", "\\boxed{\\textbf{(B)}\\ (1,2)}"),
        ("5\\text{ cm}", "\\boxed{\\textbf{(B)}\\ 5\\text{ cm}}"),
        ("\\textbf{(B)}\\ 5", "\\boxed{5}"),
        ("\\textbf{(B)}\\ 5", "\\boxed{\\textbf{(B)}\\ 5}"),
        ("\\textbf{(B)}\\ 5", "\\boxed{B}"),
        ("B", "\\boxed{\\textbf{(B)}\\ 5}"),
        ("\\textbf{(E)} ~\\frac{1}{2}", "\\boxed{\\mathrm{(E)\\ }0.5}"),
        ("25\\text{ m}^2", "\\boxed{25 m^2}"),
        ("25 m^{2}", "\\boxed{25\\text{ m}^2}"),
        ("-4\\text{ g}", "\\boxed{-4g}"),
        ("150\\text{ cm}", "\\boxed{\\frac32m}"),
        ("9\\pi\\text{ m}^3", "\\boxed{V=9\\pi m^3}"),
        ("2", "\\boxed{\\log 100}"),
        ("\\log 1000", "\\boxed{3}"),
        ("1", "\\boxed{\\log e}"),
        ("\\ln 8", "\\boxed{3\\log 2}"),
    ] {
        let judgement = judge(gold, response);
        assert_eq!(judgement.verdict, Verdict::Right, "{gold} and {response}: {judgement:?}");
    }
}

#[test]
fn what_does_not() {
    for (gold, response) in [
        ("5", "\\boxed{-5}"),
        ("5", "Answer: 5 or 6"),
        ("\\log 2", "\\boxed{0.30103}"),
        ("0.30103", "\\boxed{\\log 2}"),
        ("25\\text{ m}^2", "\\boxed{25\\text{ m}}"),
        ("42", "\\boxed{42}\\text{ is wrong; it is }\\boxed{43}"),
        ("28", "\\boxed{28\\%}"),
        ("15\\text{ cm}", "\\boxed{15\\text{ m}}"),
        ("\\frac{1}{2^{99}}", "\\boxed{\\frac{1}{2^{98}}}"),
        ("\\frac{1}{100!}", "\\boxed{\\frac{1}{101!}}"),
        ("0.0000001", "\\boxed{0.0000002}"),
        ("\\sqrt{10^{40}+1}", "\\boxed{10^{20}}"),
        ("e^{\\pi\\sqrt{163}}", "\\boxed{262537412640768744}"),
        ("\\pi", "\\boxed{\\frac{355}{113}}"),
        ("\\pi", "\\boxed{3.14}"),
        ("4", "\\boxed{4+e^{-10000}\\sin1}"),
        ("0", "\\boxed{\\sin((10^{30})!)}"),
        ("1-\\frac1e", "\\boxed{1+\\frac1e}"),
        ("204_5", "\\boxed{204_6}"),
        ("\\{1,2,3\\}", "\\boxed{(1,2,3)}"),
        ("(1,2)", "\\boxed{(2,1)}"),
        ("(1,2)", "\\boxed{\\{1,2\\}}"),
        ("3:4", "\\boxed{6:8}"),
        ("3:4", "\\boxed{4:3}"),
        ("x+z=1", "\\boxed{1}"),
        ("7=11a+c", "\\boxed{11a+c}"),
        ("xy=6", "\\boxed{6}"),
        ("x=3,y=4", "\\boxed{x=4,y=3}"),
        ("42", "\\boxed{x=42,y=43}"),
        ("x>3", "\\boxed{x\\ge3}"),
        ("x>3", "\\boxed{x<3}"),
        ("x^2<4", "\\boxed{x<2}"),
        ("|x-1|<3", "\\boxed{-2\\le x\\le4}"),
        ("(0,1)", "\\boxed{[0,1]}"),
        ("\\sqrt{x^2}", "\\boxed{x}"),
        ("(x+y)^2", "\\boxed{x^2+y^2}"),
        ("f(x)", "\\boxed{f(y)}"),
        ("\\sin x", "\\boxed{\\sin y}"),
        ("\\frac10", "\\boxed{\\frac10}"),
        ("0", "\\boxed{\\frac00}"),
        ("0", "\\boxed{\\infty-\\infty}"),
        ("\\infty", "\\boxed{-\\infty}"),
        ("42", "\\boxed{42=43}"),
        ("42", "\\boxed{42x}"),
        ("7", "\\boxed{n}"),
        ("\\frac12", "\\boxed{\\frac12, 0.5, 50\\%, 1}"),
        ("9^{9^{9^9}}", "\\boxed{8^{9^{9^9}}}"),
        ("2000000!", "\\boxed{1000000!}"),
        (
            "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
            "\\boxed{\\begin{pmatrix}1&3\\\\2&4\\end{pmatrix}}",
        ),
        ("\\text{yes}", "\\boxed{\\text{no}}"),
        ("B", "\\boxed{C}"),
        ("\\mathbb{R}", "\\boxed{x>1\\text{ and }x<3}"),
        ("\\mathbb{R}", "\\boxed{x\\ge0, x\\le0}"),
        ("x<1\\text{ or }x>3", "\\boxed{x<1\\text{ and }x>3}"),
        ("(x,y)=(1,2)", "\\boxed{(y,x)=(1,2)}"),
        ("a:b=2:3", "\\boxed{b:a=2:3}"),
        ("|x|=5", "\\boxed{x=5}"),
        ("f(x)=2x", "\\boxed{f'(x)=2x}"),
        ("f(x)=3", "\\boxed{f(2)=3}"),
        ("P(A)=\\frac12", "\\boxed{P(B)=\\frac12}"),
        ("x=3,y=4", "\\boxed{a=4,b=3}"),
        ("x\\equiv3\\pmod7", "\\boxed{x\\equiv3\\pmod5}"),
        ("5\\text{ kg}", "\\boxed{5\\text{ m}}"),
        ("2\\text{ years}", "\\boxed{2\\text{ months}}"),
        ("90^\\circ\\text{C}", "\\boxed{90^\\circ\\text{F}}"),
        ("5", "\\boxed{5\\text{ dozen}}"),
        ("z", "\\boxed{\\bar z}"),
        ("v", "\\boxed{\\hat{v}}"),
        ("\\mathbb{R}", "\\boxed{\\mathbb{Z}}"),
        ("n\\equiv1\\pmod3", "\\boxed{n\\equiv-1\\pmod{3}}"),
        ("x>3", "\\boxed{x>3, x>4}"),
        ("x>3", "\\boxed{x>3, y>3}"),
        ("\\text{Alice and Bob}", "\\boxed{\\text{Alice or Bob}}"),
        ("1,2,\\ldots,n", "\\boxed{n,2,\\ldots,1}"),
        ("1", "\\boxed{\\cos e^{-1000}}"),
        ("1", "\\boxed{2^{10^{-5000}}}"),
        ("\\frac13", "\\boxed{0.3333335}"),
        ("y=x^2", "\\boxed{x=x^2}"),
        ("x^2", "\\boxed{x=x^2}"),
        ("x=2y", "\\boxed{y=2y}"),
        ("y=2x+1", "\\boxed{x=2x+1}"),
        ("f(x)=x^2", "\\boxed{x=x^2}"),
        ("V=\\pi r^2h", "\\boxed{r=\\pi r^2h}"),
        ("n=n^2", "\\boxed{m=n^2}"),
        ("a_n=a_{n-1}+1", "\\boxed{n=a_{n-1}+1}"),
        ("f(x)=2x", "\\boxed{f(y)=2x}"),
        ("f(x)=x^2", "\\boxed{f(t)=xt}"),
        ("f(x,y)=x-y", "\\boxed{f(y,x)=x-y}"),
        ("f(x,y)=x-y", "\\boxed{f(t,t)=0}"),
        ("a_n=2n", "\\boxed{a_k=2n}"),
        ("a_n=b_n", "\\boxed{a_k=b_n}"),
        ("6", "\\boxed{\\textbf{(B)}\\ 5}"),
        ("6", "\\boxed{(B) 5}"),
        ("5B", "\\boxed{5}"),
        ("\\textbf{(B)}\\ 5", "\\boxed{\\textbf{(B)}\\ 6}"),
        ("\\textbf{(B)}\\ 5", "\\boxed{C}"),
        ("C", "\\boxed{\\textbf{(B)}\\ 5}"),
        ("25m^2", "\\boxed{25}"),
        ("25", "\\boxed{25m^2}"),
        ("25\\text{ m}^2", "\\boxed{25m}"),
        ("25\\text{ m}^2", "\\boxed{25x^2}"),
        ("25\\text{ m}", "\\boxed{25g}"),
        ("25\\text{ m}", "\\boxed{24m}"),
        ("2", "\\boxed{\\log 1000}"),
        ("2", "\\boxed{\\ln 100}"),
    ] {
        let judgement = judge(gold, response);
        assert_eq!(judgement.verdict, Verdict::Wrong, "{gold} and {response}: {judgement:?}");
    }
}

/// These texts begin like the letter of a choice, but another letter or a name follows, and no answer.
#[test]
fn letters_in_a_row_are_no_choice_and_its_answer() {
    for (gold, response) in [
        ("\\text{(A) only}", "\\text{(B) only}"),
        ("\\text{(I) only}", "\\text{(J) only}"),
        ("\\text{(A)}\\text{ only}", "\\text{(B)}\\text{ only}"),
        ("\\text{(A) is true}", "\\text{(C) is true}"),
        ("\\text{(A) 3 only}", "\\text{(B) 3 only}"),
        ("\\text{(A)}\\ 3\\text{ only}", "\\text{(B)}\\ 3\\text{ only}"),
        ("\\text{(H) atom}", "\\text{(C) atom}"),
        ("\\text{(D) none of these}", "\\text{(E) none of these}"),
        ("\\text{A: 3, B: 1}", "\\text{C: 3, B: 1}"),
        ("\\text{(A) 3, (B) 1}", "\\text{(C) 3, (B) 1}"),
        ("\\text{(A)-(3), (B)-(1)}", "\\text{(C)-(3), (B)-(1)}"),
        ("\\text{(A)-(3)}", "\\text{(C)-(3)}"),
        ("\\text{(A) (i), (B) (ii)}", "\\text{(C) (i), (B) (ii)}"),
        ("\\text{(A) to (3)}", "\\text{(B) to (3)}"),
        ("A", "\\text{(A) is false}"),
        ("B", "\\text{(B) is not the answer}"),
        ("B", "\\text{B. 5 or C. 6}"),
        ("B", "\\text{(B) 5 (C) 6 (D) 7}"),
        ("B", "\\textbf{(B)}\\ 5, \\textbf{(C)}\\ 6"),
        ("\\text{(A), (C)}", "\\text{(B), (C)}"),
        ("\\text{(A) and (C)}", "\\text{(B) and (C)}"),
        ("\\text{(A)}\\text{ and }\\text{(C)}", "\\text{(B)}\\text{ and }\\text{(C)}"),
        ("\\text{(C)}", "\\text{(A)}\\ \\text{(C)}"),
        ("\\text{J. Smith}", "\\text{A. Smith}"),
        ("0.5", "\\text{B.5}"),
    ] {
        let judgement = judge(gold, &format!("\\boxed{{{response}}}"));
        assert_ne!(judgement.verdict, Verdict::Right, "{gold} and {response}: {judgement:?}");
    }
}

/// Read as products of letters these names would cancel, and a digit at their end would be a factor.
#[test]
fn names_that_programs_print_are_no_products_of_letters() {
    let fold = |name: &str| {
        let (first, rest) = name.split_at(1);
        let title = first.to_uppercase() + rest;
        [name.to_owned(), title, name.to_uppercase()]
    };

    let names = ["inf", "infty", "infinity"].map(fold).into_iter().flatten();
    for name in names {
        for (gold, response) in [
            ("\\infty", "_"),
            ("_", "+_"),
            ("-\\infty", "-_"),
            ("(-\\infty,3)", "(-_,3)"),
            ("\\infty", "\\text{_}"),
            ("\\infty,-\\infty", "_ and -_"),
            ("-\\infty", "\\frac{-_}{2}"),
        ] {
            let [gold, response] = [gold, response].map(|text| text.replace('_', &name));
            let judgement = judge(&gold, &format!("\\boxed{{{response}}}"));
            assert_eq!(judgement.verdict, Verdict::Right, "{gold} and {response}: {judgement:?}");
        }
    }

    let names = ["inf", "infty", "infinity", "nan", "none", "null", "nil", "undefined"];
    for name in names.map(fold).into_iter().flatten().chain(["NaN".to_owned()]) {
        for (gold, response) in [
            ("_", "_1"),
            ("_1", "_"),
            ("_", "1_"),
            ("_", "\\text{_}1"),
            ("_", "_2"),
            ("1", "_1"),
            ("1", "1_"),
            ("2", "2_"),
            ("1", "1\\text{_}"),
            ("2,3", "2,3_"),
            ("0", "_-_"),
            ("1", "\\frac{_}{_}"),
            ("1", "_/_"),
            ("1", "_^0"),
            ("(1,2)", "(1_,2)"),
        ] {
            let [gold, response] = [gold, response].map(|text| text.replace('_', &name));
            let judgement = judge(&gold, &format!("\\boxed{{{response}}}"));
            assert_ne!(judgement.verdict, Verdict::Right, "{gold} and {response}: {judgement:?}");
        }
    }
}

#[test]
fn what_is_no_number_equals_nothing() {
    for name in ["nan", "NaN", "NAN"] {
        for (gold, response) in [
            ("_", "_"),
            ("_", "\\text{_}"),
            ("_", "_)"),
            ("_", "_+1"),
            ("0", "0\\cdot _"),
            ("x", "x+_"),
            ("(1,_)", "(1,_)"),
            ("\\{1,_\\}", "\\{1,_\\}"),
            ("x=_", "x=_"),
            ("x<_", "x<_"),
            ("\\infty", "_"),
        ] {
            let [gold, response] = [gold, response].map(|text| text.replace('_', name));
            let judgement = judge(&gold, &format!("\\boxed{{{response}}}"));
            assert_ne!(judgement.verdict, Verdict::Right, "{gold} and {response}: {judgement:?}");
        }
    }
}

/// `Nan` is somebody's name, `\inf A` is the greatest lower bound of a set, and N, A and F may be points.
#[test]
fn names_of_values_may_be_other_names() {
    let points = judge("\\angle INF", "\\boxed{\\angle FNI}");
    assert_eq!(points.verdict, Verdict::Right, "{points:?}");

    for same in
        ["Nan", "\\text{Nan}", "Bob and Nan", "inf A", "inf(A)", "\\angle INF", "\\triangle NAN"]
    {
        let judgement = judge(same, &format!("\\boxed{{{same}}}"));
        assert_eq!(judgement.verdict, Verdict::Right, "{same}: {judgement:?}");
    }
}

/// A sum's index is not a variable, while the variables in its bounds and terms are.
#[test]
fn without_strict_names_variables_go_by_their_order() {
    let verifier = Verifier { strict_names: false, ..Verifier::default() };
    let gold = "n+\\sum_{k=1}^{n}\\frac{k}{n}";
    for (response, verdict) in [
        ("m+\\sum_{k=1}^{m}\\frac{k}{m}", Verdict::Right),
        ("m+\\sum_{k=1}^{n}\\frac{k}{n}", Verdict::Wrong),
        ("m+\\sum_{k=1}^{m}\\frac{k}{n}", Verdict::Wrong),
    ] {
        let judgement = verifier.judge(gold, &format!("\\boxed{{{response}}}"));
        assert_eq!(judgement.verdict, verdict, "{response}: {judgement:?}");
    }
}

#[test]
fn the_answer_of_a_solution_is_the_gold_answer() {
    let worked = "(6 points) It digs 185 metres, the first $\\frac13$ at one speed.\n$$\n\\begin{array}{l} \
                  =\\frac{25}{36} \\end{array}\n$$\nAnswer: it takes 180 days.\nTherefore, the answer is: 180.";
    check(worked, &["180"], &["185", r"\frac{25}{36}", "6"]);
    let announced = "We have $x^2=9$ and $x>0$, so $x=3$. The final answer is $3$.";
    check(announced, &["3"], &["9", "-3"]);
    check("First \\boxed{x=-3} is out, so it is $\\boxed{3}$.", &["3"], &["-3"]);
    check("We add.\n\n**Final Answer**\n\n$(1,2)$", &["(1,2)"], &["(2,1)"]);
    check("2+2=4。所以答案是 4。", &["4"], &["2"]);
    check("The answer is June 5, as asked.", &[r"\text{June 5}"], &["5"]);

    // No answer is marked here, and no formula is taken as one.
    let unmarked = judge("We have $x^2=9$ and $x>0$, so $x=3$.", "\\boxed{3}");
    assert_eq!(unmarked.verdict, Verdict::Error, "{unmarked:?}");
}

/// Judges the boxes of `right` and of `wrong` against `gold`. Nothing in `wrong` is right, and nothing in it makes the
/// gold answer unreadable.
fn check(gold: &str, right: &[&str], wrong: &[&str]) {
    for response in right {
        let judgement = judge(gold, &format!("\\boxed{{{response}}}"));
        assert_eq!(judgement.verdict, Verdict::Right, "{gold} and {response}: {judgement:?}");
    }

    for response in wrong {
        let judgement = judge(gold, &format!("\\boxed{{{response}}}"));
        let refused = matches!(judgement.verdict, Verdict::Wrong | Verdict::Unparsable);
        assert!(refused, "{gold} and {response}: {judgement:?}");
    }
}

#[test]
fn a_condition_behind_an_answer_is_no_part_of_it() {
    check(
        "f(x)=2x",
        &[
            r"f(x)=2x \text{ for all } x",
            r"f(x)=2x \text{ for all real } x",
            r"f(x)=2x \text{ for all } x\in\mathbb{R}",
            r"f(x)=2x \quad\forall x\in\mathbb{R}",
            r"f(x)=2x,\ \forall x \in [0,1]",
            r"f(x)=2x \text{ where } x \text{ is real}",
            r"f(x)=2x \quad (x > 0)",
            r"f(x)=2x,\ x \ne 1",
            r"f(x)=2x \text{ on } \mathbb{R}",
        ],
        &[
            r"f(x)=x \text{ for all } x\in\mathbb{R}",
            r"\forall x>0, f(x)=2x",
            r"f(x)=2x \text{ unless } x=1",
        ],
    );

    check(
        "f(n)=n+1",
        &[
            r"f(n)=n+1 \text{ for all } n \geq 1",
            r"f(n)=n+1,\ n\ge 1",
            r"f(n)=n+1 \quad n\ge 1",
            r"f(n)=n+1,\ n\in\mathbb{N}^*",
            r"f(n)=n+1\ (n \text{ even})",
            r"f(n)=n+1 \text{ for } n=1,2,3,\ldots",
            r"f(n)=n+1,\quad n=1,2,3,\dots",
            r"f(n)=n+1,\ n=0,1,2,\ldots",
            r"f(n)=n+1 \quad n=1,2,3,\cdots",
            r"f(n)=n+1,\ n = 1, 2, ...",
            r"f(n)=n+1; n=-1,0,1,…",
            r"f(n)=n+1\ (n=1,2,3,\dots)",
            r"f(n)=n+1,\ n=0,\pm1,\pm2,\dots",
            r"f(n)=n+1,\ n=1,2,\dots,9",
            r"f(n)=n+1,\ n=1,2,\dots,m-1",
            r"f(n)=n+1\text{ for } n=1,2,\dots,m-1",
            r"f(n)=n+1 \text{ for all integers } n \ge 1 \text{ and } n \neq 3",
        ],
        &[
            r"f(n)=n+2 \text{ for all } n \geq 1",
            r"f(n)=n+2,\quad n=1,2,3,\dots",
            "f(n)=n+1, n=3",
            r"f(n)=n+1, n=1,2,\dots,m=3",
            "f(n)=n+1, n=1,2,3",
            r"f(n)=n+1,\ n=1,2,\dots,\ f(n)=n",
            // The cases are two answers.
            r"f(n)=n+1 \text{ for } n \text{ odd}, f(n)=n \text{ for } n \text{ even}",
            r"f(n)=n+1 \text{ if } n>1, 0 \text{ if } n<1",
            r"f(n)=n+1 \text{ if } n>1, 0 \text{ otherwise}",
        ],
    );

    check(
        r"f(x)=cx \text{ for any } c\in\mathbb{R}",
        &["f(x)=cx", r"f(x)=cx, c\in\mathbb{R}", r"f(x)=cx \text{ for some constant } c"],
        &["f(x)=x^2", r"f(x)=0 \text{ for any } c\in\mathbb{R}"],
    );

    // A letter that gets its value after the formula is a part of it.
    check(
        "2x+c",
        &[r"2x+c, \text{ where } c \text{ is a constant}", r"2x+c \text{ with } c\in\mathbb{R}"],
        &[r"2x+c, \text{ where } c=3"],
    );
    check("2x+3", &[], &[r"2x+c, \text{ where } c=3"]);

    check("n-1", &[r"n-1 \text{ if } n\geq 2"], &[]);
    check("5", &[r"5 \text{ at } x=2"], &[r"5 \text{ at least}", r"5 \text{ for } 3"]);
    check("5", &[], &[r"5, n=1,2,3,\dots"]);
    check("n=0", &[], &[r"n=0, n=1,2,3,\dots"]);
    check("P", &[], &["P(X>1)", r"P\left(X>1\right)"]);
    check("x>2", &[], &["x>2, x<5"]);
}

#[test]
fn a_unit_behind_a_number_is_left_aside_in_every_spelling() {
    let units = [
        r"\ \mathrm{m/s}",
        r"~\text{m}\,\text{s}^{-1}",
        r" \text{ m s}^{-1}",
        r"\,\mathrm{m\,s^{-1}}",
        r"\,\mathrm{m\cdot s^{-1}}",
        r"\,\mathrm{m}\,\mathrm{s}^{-1}",
        r"\,\frac{\text{m}}{\text{s}}",
        r"\,\mathrm{\frac{m}{s}}",
        r"\ \text{m}/\text{s}^2",
        r"\,\rm m/s",
        r"\ {\rm m\,s^{-1}}",
        r"\,\unit{m/s}",
        r"\,m/s",
        r"\text{ m·s⁻¹}",
        r"\,\mathrm{kg\,m^2}",
        r"\,\mathrm{cm^2}",
        r"\,\mathrm{N\,m}",
        r"\,\text{N}\cdot\text{m}",
        r"\text{ N-m}",
        r"\,\mathrm{J\,kg^{-1}\,K^{-1}}",
        r"\,\mathrm{J/(kg\,K)}",
        r"\mathrm{~m} / \mathrm{s}",
        r"\,\mathrm m",
        r"\,\Omega",
        r"\,\mathrm{k\Omega}",
        r"\,\text{M}\Omega",
        r"\,\mu\text{m}",
        r"\,\mathrm{\mu F}",
        r"\text{ µm}",
        r"^\circ\text{C}",
        r"\,^{\circ}\mathrm{C}",
        r"{}^\circ\mathrm C",
        r"^{\circ} C",
        r"\text{ ℃}",
        r"\,\mathrm{MPa}",
        r" GHz",
        r" \text{ mph}",
        r"\text{ metres per second squared}",
        r"\,\mu s",
        r"\,\mathrm{L/min}",
        r"\text{ rev/min}",
        r"\,\mathrm{kg/min}",
        r"\,\text{m}/\text{min}",
        r"\text{ m/min}",
        r"\text{ ft/sec}",
        r"\,\mathrm{L\,min^{-1}}",
        r"\,\mathrm{mol\,L^{-1}\,min^{-1}}",
        r"\,\mathrm{L\cdot min^{-1}}",
        r"\,\frac{\text{L}}{\text{min}}",
        r"\,\mathrm{\frac{L}{min}}",
        r"\,\frac{\text{min}}{\text{km}}",
        r"\,\mathrm{mL/(kg\cdot min)}",
        r"\,\mathrm{mL/(min\cdot kg)}",
        r"\,\mathrm{m/min^2}",
        r"\text{ beats per min}",
        r"\,\rm L/min",
        " m/min",
        " L/min",
        r"\,\mathrm{min/km}",
    ];

    for unit in units {
        let measured = format!("12{unit}");
        check("12", &[&measured], &[]);
        check(&measured, &["12"], &["13", "12x"]);
        check(r"2.5\times10^3", &[&format!(r"2.5\times10^3{unit}")], &[]);
        check(r"\frac32", &[&format!(r"\frac32{unit}")], &[]);
    }

    for sentence in ["The flow is 12 L/min.", "It runs at 12 m/min.", "We count 12 beats/min."] {
        assert_eq!(judge("12", sentence).verdict, Verdict::Right, "{sentence}");
        assert_ne!(judge("13", sentence).verdict, Verdict::Right, "{sentence}");
    }

    // Letters that are not units.
    check(
        "12",
        &[],
        &["12\\,m", "12x", r"12\mu", r"12\Omega^2", r"12\mu N", r"12\,\mathrm{e}", r"12\mathrm{i}"],
    );

    check(r"3\mathrm{A}+2\mathrm{B}", &["2B+3A"], &["3", "3A"]);
    check(r"\frac32", &[], &[r"\frac32 kT"]);
    check(r"\frac{\pi}{15}", &[r"12^\circ"], &[r"12\,^{\circ}\mathrm{C}"]);
}

/// A product of units is none of these units, so it is not converted.
#[test]
fn a_product_of_units_is_not_its_last_unit() {
    for units in [
        r"\,\mathrm{N\,m}",
        r"\,\mathrm{N~m}",
        r"\,\mathrm{kN\,m}",
        r"\,\mathrm{N\cdot m}",
        r"\,\mathrm{N-m}",
        r"\,\mathrm{kN-m}",
        r"\,\mathrm{m\,N}",
        r"\,\mathrm{N}\,\mathrm{m}",
        r"\,\mathrm{Wb\,m}",
        r"\,\mathrm{T\,m}",
        r"\,\mathrm{m\,K}",
        r"\,\mu\mathrm{N\,m}",
        r"\,\text{k}\Omega\,\text{m}",
        r"\,\Omega\,\mathrm{m}",
        r"\text{ N m}",
        r"\text{ N·m}",
        r"\text{ N-m}",
        r"\text{ newton meters}",
        r"\text{ kilonewton-metres}",
        r"\text{ foot pounds}",
        " kN m",
    ] {
        let gold = format!("12{units}");
        check(&gold, &["12", r"12\,\mathrm{N\,m}"], &[r"1200\text{ cm}", r"12000\text{ mm}", "13"]);
        check("12", &[&gold], &[]);
        check(r"1200\text{ cm}", &[], &[&gold]);
    }

    for units in [
        r"\text{ W s}",
        r"\,\mathrm{W\,s}",
        r"\text{ A s}",
        r"\,\mathrm{mA\,s}",
        r"\text{ watt seconds}",
        r"\text{ Kilowatt seconds}",
        r"\text{ Pa s}",
        r"\text{ MW s}",
    ] {
        let gold = format!("60{units}");
        check(&gold, &["60"], &[r"1\text{ min}", r"60000\text{ ms}"]);
    }

    // Words next to a single unit say what is measured.
    for unit in ["cm long", "more cm", "cm each", "full cm"] {
        check(&format!(r"150\text{{ {unit}}}"), &[r"1.5\text{ m}"], &[r"150\text{ m}"]);
    }
    check(r"5\text{ g N}", &[r"0.005\text{ kg}"], &[r"5\text{ kg N}"]);
    check(r"5\text{ km N}", &[r"5000\text{ m}"], &[r"5\text{ m}"]);

    // The hyphen is a minus before a variable.
    check("3C-A", &[r"3\mathrm{C}-\mathrm{A}"], &["3", r"4\mathrm{C-A}"]);
}

#[test]
fn a_function_may_be_identical_to_another() {
    check(
        "f(x)=0",
        &[r"f(x)\equiv 0", r"f\equiv 0", "f(x) ≡ 0", r"f(t)\equiv0"],
        &[r"f(x)\equiv 1"],
    );
    check(
        "f(x)=2x",
        &[r"f(x)\equiv 2x", r"f\equiv 2x"],
        &[r"f(x)\equiv x", r"f(x)\equiv 2x\pmod 3"],
    );

    check(r"f(x)\equiv 0", &["f(x)=0", "0"], &["f(x)=1", r"f(x)\equiv 0\pmod 2"]);
    check("P(x)=0", &[r"P(x)\equiv 0"], &[]);
    check(
        r"f(n)\equiv 1\pmod 3",
        &[r"f(n)\equiv 4\pmod3"],
        &["f(n)=1", r"f(n)\equiv 1", r"f(n)\equiv1\pmod4"],
    );
    check(
        "f(x)=0",
        &[],
        &[r"f(x)\equiv 0 \text{ mod } 2", r"f(x)\equiv 0\ (\bmod 2)", r"f(x)\equiv 0,1 \pmod 3"],
    );

    check("x=3", &[], &[r"x\equiv3\pmod5", r"x\equiv 3"]);
}

#[test]
fn words_that_open_or_close_an_argument_are_no_part_of_the_answer() {
    for gold in [
        "Thus, $x=8$.",
        "Therefore, 8",
        "So, 8.",
        "so, $8$",
        "Hence, $x = 8$",
        "Then, x=8",
        r"\text{Thus, } x=8",
        r"\text{So, }8",
        r"\text{Therefore},\ 8",
        "因此，8",
        "$x=8$, as required.",
        "$x=8$, as desired",
        "8, as claimed.",
        r"x=8,\text{ as required}",
        "Thus, $x=8$, as required.",
    ] {
        check(gold, &["8", "x=8", r"\text{Thus, }x=8", r"8,\text{ as required}"], &["9", "x=9"]);
        check("8", &[gold], &[]);
    }

    check("In conclusion, $x=8$", &["8"], &["9"]);

    // Without the comma nobody can tell where the sentence ends.
    for gold in ["Thus $x=8$", "So $x=8$", "So 8"] {
        assert_eq!(judge(gold, r"\boxed{9}").verdict, Verdict::Error, "{gold}");
    }

    check("So", &["oS"], &["S"]);
    check("Thus, 8 or 9", &["8,9"], &["8", "9"]);
    check("Thus, yes", &["yes"], &["no"]);
    check("so, but, yet", &["so, but, yet"], &["but, yet"]);
    check("as", &["sa"], &["a"]);
    check("1, as", &["sa, 1"], &["1"]);
}

#[test]
fn days_and_times_of_day_are_compared_as_such() {
    check(
        r"3:30 \text{ p.m.}",
        &["3:30", "15:30", r"\text{3:30 PM}", "3:30 pm", r"3:30\text{ in the afternoon}"],
        &["4:30", "3", "3.5", r"\frac1{10}", r"3:30 \text{ a.m.}", r"4:30 \text{ p.m.}", "3:31 pm"],
    );
    check("3 p.m.", &["3", "3:00", "3 pm", r"\text{3 o'clock}"], &["3 am", "4", "3:30 pm"]);
    check(
        r"\text{June 5}",
        &[
            "June 5",
            r"\text{June } 5",
            r"\text{the 5th of June}",
            r"\text{Wednesday, June 5, 2024}",
            "2024-06-05",
        ],
        &[r"\text{June 6}", r"\text{July 5}", "5", r"\text{June}", "2024-05-06"],
    );

    // These are neither a difference nor a quotient.
    check("2013", &[], &["2024-06-05", "2024/06/05"]);
    check("-2023", &[], &["05-06-2024"]);
    check("1980", &["2000-10-10=1980"], &[]);
    check("3:26:30", &[], &["3:30-4:30"]);
    check(r"\frac{3}{5060}", &[], &["6/5/2024"]);
    check("30", &["30"], &["June 30"]);

    for (gold, response) in [
        ("June 5", "The answer is June 5."),
        ("June 5", "Answer: 5 June 2024"),
        ("3:30 pm", "The answer is 3:30 p.m."),
        ("5", "In May 5 people came, so the answer is 5."),
    ] {
        assert_eq!(judge(gold, response).verdict, Verdict::Right, "{gold} and {response}");
    }

    assert_eq!(judge("3:30 pm", "The answer is 3:30 a.m.").verdict, Verdict::Wrong);
    assert_eq!(judge("June 5", "The answer is 5.").verdict, Verdict::Wrong);
}

#[test]
fn an_answer_that_cannot_be_read_is_unparsable() {
    for response in ["", "\\boxed{}", "\\boxed{\\frac{1}{}}", "\\boxed{42?43:44}", "\\boxed{1.2.3}"]
    {
        assert_eq!(judge("42", response).verdict, Verdict::Unparsable, "{response}");
    }

    assert_eq!(judge("1.23.4", "\\boxed{12.3.4}").verdict, Verdict::Unparsable);
    assert_eq!(judge("1.23.4", "\\boxed{1.23.4}").verdict, Verdict::Right);
    assert_eq!(judge("\\int_0^1x\\,dx", "\\boxed{\\frac12}").verdict, Verdict::Error);
    assert_eq!(judge("", "\\boxed{42}").verdict, Verdict::Error);
    assert_eq!(judge("\\text{}", "\\boxed{\\text{}}").verdict, Verdict::Error);
}

#[test]
fn lowest_terms_count_where_they_are_asked_for() {
    let strict = Verifier { reduced_fractions: true, ..Verifier::default() };
    for (response, verdict) in [
        ("\\boxed{\\frac12}", Verdict::Right),
        ("\\boxed{0.5}", Verdict::Right),
        ("\\boxed{\\frac24}", Verdict::Wrong),
        ("\\boxed{2/4}", Verdict::Wrong),
    ] {
        assert_eq!(strict.judge("\\frac12", response).verdict, verdict, "{response}");
        assert_eq!(judge("\\frac12", response).verdict, Verdict::Right, "{response}");
    }
}

/// The question's own expression has the right value, but is not an answer.
#[test]
fn an_answer_is_evaluated_where_that_is_asked_for() {
    let strict = Verifier { evaluated: true, ..Verifier::default() };
    for (gold, response, verdict) in [
        ("84", "25 + 59 = 84.", Verdict::Right),
        ("84", "25 + 59 is 84", Verdict::Right),
        ("84", "x = 84.0", Verdict::Right),
        ("-3", "The answer is -3.", Verdict::Right),
        ("84", "To add them we write 25 + 59.", Verdict::Wrong),
        ("84", "x = 25 + 59", Verdict::Wrong),
        ("84", "\\boxed{25 + 59}", Verdict::Wrong),
        ("42", "Answer: 84 / 2", Verdict::Wrong),
        ("42", "Answer: 84.0 / 2", Verdict::Wrong),
        ("84", "Answer: 84 / 1", Verdict::Wrong),
        ("84", "Answer: 8400 / 100", Verdict::Wrong),
        ("0.5", "Answer: 50%", Verdict::Right),
        ("50\\%", "Answer: 1/2", Verdict::Right),
        ("33", "10 + 23 ≈ 24", Verdict::Wrong),
        ("33", "10 + 23 ≈ 33", Verdict::Right),
        ("\\frac12", "Answer: 1/2", Verdict::Right),
        ("\\sqrt{12}", "\\boxed{2\\sqrt3}", Verdict::Right),
    ] {
        assert_eq!(strict.judge(gold, response).verdict, verdict, "{response}");
        assert_eq!(judge(gold, response).verdict, Verdict::Right, "{response}");
    }
}

#[test]
fn a_judgement_says_what_it_rests_on() {
    let judgement = judge("\\frac12", "So we get \\boxed{0.50}, done.");
    let span = judgement.extracted.expect("there is a box");
    assert_eq!(&"So we get \\boxed{0.50}, done."[span.range], "0.50");
    assert_eq!(judgement.certainty, Certainty::Proved);
    assert_eq!(judgement.gold.as_deref(), Some("1/2"));
}
