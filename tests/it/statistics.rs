//! Statistics against scipy (`tests/oracle/statistics.py`) and against the reference values shared by the project.
use inferlab::statistics::{
    geometric_interval, incomplete_beta, noise_floor, paired_ratio_interval, percentile, pooled_log_spread,
    student_t_cdf, student_t_quantile, wilson,
};
use serde_json::Value;

fn scipy() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/statistics/scipy.json");
    serde_json::from_slice(&std::fs::read(path).expect("the fixture is committed")).expect("JSON")
}

/// Values of `shared/facts/statistics.json`, or nothing where they are not there.
fn shared() -> Option<Value> {
    let folder = std::env::var("INFERLAB_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    let path = std::path::Path::new(&folder).join("facts/statistics.json");
    match std::fs::read(&path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).expect("JSON")),
        Err(error) => {
            println!("skipped: {}: {error}", path.display());
            None
        }
    }
}

fn numbers(row: &Value) -> Vec<f64> {
    row.as_array().expect("a row").iter().map(|v| v.as_f64().expect("a number")).collect()
}

fn rows(of: &Value) -> impl Iterator<Item = Vec<f64>> + '_ {
    of.as_array().expect("rows").iter().map(numbers)
}

#[track_caller]
fn close(found: Option<f64>, expected: f64, relative: f64, absolute: f64) {
    let found = found.expect("a value");
    let bound = relative * expected.abs() + absolute;
    assert!((found - expected).abs() <= bound, "{found} instead of {expected}");
}

#[test]
fn t_quantiles_cdf_and_the_incomplete_beta_function_are_those_of_scipy() {
    let scipy = scipy();
    let mut n = 0;
    for row in rows(&scipy["t_quantile"]) {
        close(student_t_quantile(row[0], row[1]), row[2], 1e-8, 1e-9);
        n += 1;
    }
    for row in rows(&scipy["t_cdf"]) {
        close(student_t_cdf(row[0], row[1]), row[2], 1e-8, 1e-13);
        n += 1;
    }
    for row in rows(&scipy["incomplete_beta"]) {
        close(incomplete_beta(row[0], row[1], row[2]), row[3], 1e-9, 1e-13);
        n += 1;
    }
    assert_eq!(n, 12 * 9 + 5 * 7 + 5 * 6, "the fixture is whole");
}

#[test]
fn percentiles_are_numpys_linear_ones() {
    let scipy = scipy();
    for row in scipy["percentile"].as_array().expect("rows") {
        let (values, p) = (numbers(&row[0]), row[1].as_f64().expect("p"));
        close(percentile(&values, p), row[2].as_f64().expect("value"), 1e-12, 0.0);
    }
}

#[test]
fn wilson_intervals_are_those_of_scipy_and_of_the_project() {
    let check = |row: Vec<f64>, absolute: f64| {
        let found = wilson(row[0] as u64, row[1] as u64);
        close(found.map(|i| i.0), row[2], 0.0, absolute);
        close(found.map(|i| i.1), row[3], 0.0, absolute);
    };
    rows(&scipy()["wilson"]).for_each(|row| check(row, 1e-12));
    if let Some(shared) = shared() {
        rows(&shared["wilson95"]).for_each(|row| check(row, 1e-6));
    }
}

#[test]
fn cut_off_answers_move_a_share_further_than_its_interval() {
    // B95: five right of ten, four of them cut off; of the six that were answered five are right. Wilson, by hand with z = 1.96:
    // 5/10: (0.5 + 0.19207 ± 1.96 · sqrt(0.025 + 0.0096036)) / 1.38415, 5/6: centre 0.717, half-width 0.281.
    let (all, answered) = (wilson(5, 10).expect("interval"), wilson(5, 6).expect("interval"));
    assert!((all.0 - 0.2366).abs() < 1e-4 && (all.1 - 0.7634).abs() < 1e-4, "{all:?}");
    assert!((answered.0 - 0.4365).abs() < 1e-3 && (answered.1 - 0.9699).abs() < 1e-3, "{answered:?}");
}

#[test]
fn intervals_on_logarithms_are_those_of_scipy() {
    for case in scipy()["log_interval"].as_array().expect("cases") {
        let found = geometric_interval(&numbers(&case["values"])).expect("interval");
        let ends = numbers(&case["interval"]);
        close(Some(found.centre), case["centre"].as_f64().expect("centre"), 1e-12, 0.0);
        close(found.low, ends[0], 1e-9, 0.0);
        close(found.high, ends[1], 1e-9, 0.0);
    }
}

#[test]
fn paired_ratios_are_those_of_scipy_and_of_the_project() {
    let scipy = scipy();
    let shared = shared();
    #[allow(clippy::type_complexity)] // read in one place, by position, as the file has it
    let mut cases: Vec<(Vec<f64>, Vec<f64>, f64, Vec<f64>, f64)> = scipy["paired"]
        .as_array()
        .expect("cases")
        .iter()
        .map(|c| {
            let ratio = c["ratio"].as_f64().expect("ratio");
            (numbers(&c["a"]), numbers(&c["b"]), ratio, numbers(&c["interval"]), c["p"].as_f64().expect("p"))
        })
        .collect();
    if let Some(ratio) = shared.as_ref().map(|s| &s["ratio"]) {
        let point = ratio["geo_ratio"].as_f64().expect("ratio");
        let (interval, p) = (numbers(&ratio["paired_log_ci"]), ratio["paired_p"].as_f64().expect("p"));
        cases.push((numbers(&ratio["x"]), numbers(&ratio["y"]), point, interval, p));
    }
    for (a, b, point, ends, p) in cases {
        let pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
        let found = paired_ratio_interval(&pairs).expect("interval");
        close(Some(found.centre), point, 1e-9, 0.0);
        close(found.low, ends[0], 1e-9, 0.0);
        close(found.high, ends[1], 1e-9, 0.0);
        // The two-sided p of the same t: an end of the interval lies t(0.975) standard errors away from the centre.
        let df = (found.n - 1) as f64;
        let half = (found.high.expect("high") / found.centre).ln() / student_t_quantile(0.975, df).expect("t");
        let t = (found.centre.ln() / half).abs();
        close(student_t_cdf(-t, df).map(|tail| 2.0 * tail), p, 1e-5, 0.0);
    }
}

#[test]
fn the_noise_floor_is_that_of_the_pooled_residuals() {
    let pooled = &scipy()["pooled"];
    let arms: Vec<Vec<f64>> = rows(&pooled["arms"]).collect();
    let spread = pooled_log_spread(&arms).expect("spread");
    assert_eq!(Some(spread.df as u64), pooled["df"].as_u64());
    close(Some(spread.sd), pooled["sd"].as_f64().expect("sd"), 1e-12, 0.0);
    close(noise_floor(spread, 3), pooled["floor"].as_f64().expect("floor"), 1e-9, 0.0);
}
