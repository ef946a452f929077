"""Reference values for src/statistics, from scipy and numpy.

    pip install scipy==1.17.1
    python tests/oracle/statistics.py > tests/fixtures/statistics/scipy.json

tests/it/statistics.rs reproduces every value.
"""
import json

import numpy as np
from scipy import special, stats


def t_interval(values):
    v = np.asarray(values, dtype=float)
    if len(v) < 2:
        return None
    return list(map(float, stats.t.interval(0.95, len(v) - 1, loc=v.mean(), scale=stats.sem(v))))


def log_interval(values):
    logs = np.log(values)
    ends = t_interval(logs)
    return {"values": values, "centre": float(stats.gmean(values)), "interval": [float(np.exp(e)) for e in ends]}


def paired(a, b):
    d = np.log(a) - np.log(b)
    return {
        "a": a, "b": b, "ratio": float(np.exp(d.mean())), "interval": [float(np.exp(e)) for e in t_interval(d)],
        "t": float(stats.ttest_rel(np.log(a), np.log(b)).statistic), "p": float(stats.ttest_rel(np.log(a), np.log(b)).pvalue),
    }


rng = np.random.default_rng(20261130)
samples = [sorted(map(float, np.round(rng.lognormal(3, 1, n), 6))) for n in (1, 2, 3, 7, 44, 101)]
arms = [[100.0, 102.5, 99.1], [80.0, 80.4, 79.9, 81.2], [3.0]]
residuals = np.concatenate([np.log(a) - np.log(a).mean() for a in arms if len(a) > 1])
df = sum(len(a) - 1 for a in arms if len(a) > 1)
sd = float(np.sqrt((residuals**2).sum() / df))
print(json.dumps({
    "made_by": f"scipy {__import__('scipy').__version__}, numpy {np.__version__}",
    "t_quantile": [[p, d, float(stats.t.ppf(p, d))] for d in (0.5, 1, 2, 3, 4, 5, 7.3705664406, 10, 29, 99, 1000, 1e6)
                   for p in (0.0005, 0.025, 0.3, 0.6, 0.9, 0.95, 0.975, 0.995, 0.9995)],
    "t_cdf": [[t, d, float(stats.t.cdf(t, d))] for d in (0.5, 1, 3, 11, 250) for t in (-40.0, -2.5, -0.01, 0.0, 0.3, 1.96, 12.7)],
    "incomplete_beta": [[a, b, x, float(special.betainc(a, b, x))] for a, b in ((0.5, 0.5), (2, 3), (0.5, 40), (500, 0.5), (30, 70))
                        for x in (0.001, 0.1, 0.3, 0.5, 0.9, 0.999)],
    "percentile": [[s, p, float(np.quantile(s, p, method="linear"))] for s in samples for p in (0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 1)],
    "wilson": [[k, n, *map(float, stats.binomtest(k, n).proportion_ci(0.95, method="wilson"))]
               for k, n in ((0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (1084, 1200), (99999, 100000))],
    "log_interval": [log_interval(v) for v in ([3.1, 3.3], [96.4, 97.9, 95.2, 96.8], [0.002, 0.0021, 0.0019, 0.0025, 0.0022, 0.002])],
    "paired": [paired([86.1, 85.9, 86.3, 85.7, 86.0, 85.8], [83.2, 83.9, 83.5, 84.1, 83.0, 83.7]), paired([10.0, 12.0, 11.0], [10.5, 11.5, 11.2])],
    "pooled": {"arms": arms, "sd": sd, "df": df, "blocks": 3,
               "floor": float(np.exp(stats.t.ppf(0.975, df) * sd * np.sqrt(2 / 3)) - 1)},
}, indent=None, separators=(",", ":")).replace('],[', '],\n['))
