"""An engine's statistics as Prometheus metrics; needs ``grammar-backends[prometheus]``.

A scrape reads a snapshot, so that nothing is counted twice and nothing is paid for between scrapes::

    prometheus_client.REGISTRY.register(GrammarCollector(statistics))
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from grammar_backends.statistics.engine import EngineStatistics, Family, Histogram, Sample

__all__ = ["GrammarCollector"]


class GrammarCollector(Collector):
    """Shows one `EngineStatistics` to a registry.

    Args:
        statistics: what is shown.
        prefix: begins every name.
    """

    def __init__(self, statistics: EngineStatistics, prefix: str = "grammar_backends") -> None:
        self._statistics = statistics
        self._prefix = prefix

    def collect(self) -> Iterator[Metric]:
        """All families, those without a value as well."""
        for family, samples in self._statistics.snapshot().families:
            yield self._metric(family, samples)

    def _metric(self, family: Family, samples: tuple[Sample, ...]) -> Metric:
        name = f"{self._prefix}_{family.name}"
        if family.kind == "histogram":
            histograms = HistogramMetricFamily(name, family.documentation, labels=family.labels)
            for sample in samples:
                if isinstance(sample.value, Histogram):
                    histograms.add_metric(sample.labels, _buckets(sample.value), sample.value.total)
            return histograms
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        numbers = kind(name, family.documentation, labels=family.labels)
        for sample in samples:
            if not isinstance(sample.value, Histogram):
                numbers.add_metric(sample.labels, sample.value)
        return numbers


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus wants them, the last one without a bound."""
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    return list(zip(bounds, itertools.accumulate(histogram.counts), strict=True))
