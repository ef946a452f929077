//! Figures: any data gives a picture, and what it says is readable.
use std::path::Path;

use inferlab::plot::scene::{HEIGHT, Op, Scene, WIDTH};
use inferlab::plot::{Curve, DistributionChart, Horizontal, LineChart, Mark, Panel, Point, Series, Vertical, figures};

use crate::report_summary::{failed_run, full_run, invalid_synthetic_run};

/// Where to leave the pictures for a person to look at: `INFERLAB_PICTURES=dir cargo test`.
fn leave(name: &str, scene: &Scene) {
    if let Some(dir) = std::env::var_os("INFERLAB_PICTURES") {
        let path = Path::new(&dir).join(format!("{name}.png"));
        scene.write_png(&path).expect("picture written");
        std::fs::write(path.with_extension("svg"), scene.to_svg(name, name).expect("svg")).expect("svg written");
    }
}

#[test]
fn every_figure_of_a_run_is_painted() {
    for (name, run) in [("full", full_run()), ("invalid", invalid_synthetic_run()), ("failed", failed_run())] {
        for figure in figures(&run) {
            leave(&format!("{name}-{}", figure.slug), &figure.scene);
        }
    }
}
