"""What the figures of a run need of its metrics, counted as they come."""

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.simulation.metric import Metric


@dataclass
class Tally:
    """Counts over the metrics so far; memory grows by one number a request.

    Attributes
    ----------
    initial, size : int
        M0 and P.
    first, last : Metric or None
        The initial training, and the latest request.
    requests : int
        Those handled.
    outside : int
        Rows whose population was not in [M0/2, 2 M0].
    strayed : Metric or None
        The first of them.
    shrunk : int
        Rows whose population was below P, so that the subset was smaller than P.
    loose : int
        Rows whose projection missed its tolerance.
    residual : float
        The largest residual among them.
    forget, include : array of float
        Seconds from each leave, and from each join, to the release of the model that follows.
    waiting_most, waiting_sum : int
        Requests that wait just after one has arrived, itself included unless it is begun at
        once: the most, and the sum over requests.
    batch_most : int
        The most requests handled together.
    batches : float
        How many times requests were handled, to the last bits of a float.
    """

    initial: int
    size: int
    first: Metric | None = None
    last: Metric | None = None
    requests: int = 0
    outside: int = 0
    strayed: Metric | None = None
    shrunk: int = 0
    loose: int = 0
    residual: float = 0.0
    forget: "array[float]" = field(default_factory=lambda: array("d"))
    include: "array[float]" = field(default_factory=lambda: array("d"))
    waiting_most: int = 0
    waiting_sum: int = 0
    batch_most: int = 0
    batches: float = 0.0
    _starts: deque[float] = field(default_factory=deque)

    def add(self, metrics: Sequence[Metric]) -> None:
        """Take in the rows of what was handled."""
        for metric in metrics:
            self._add(metric)

    def _add(self, metric: Metric) -> None:
        self.first = self.first or metric
        self.last = metric
        if not self.initial / 2 <= metric.population <= 2 * self.initial:
            self.outside += 1
            self.strayed = self.strayed or metric
        # A subset of 0 means that the method keeps none; some never replace who has left.
        self.shrunk += metric.population < self.size and metric.subset > 0
        if not metric.converged:
            self.loose += 1
            self.residual = max(self.residual, metric.residual)
        if metric.request == 0:
            return
        self.requests += 1
        delays = self.forget if metric.kind == "leave" else self.include
        delays.append(round(metric.t_end - metric.t, 6))  # differences of whole microseconds
        self.batch_most = max(self.batch_most, metric.batch)
        self.batches += 1 / metric.batch  # a batch has a row for each of its requests
        self._wait(metric)

    def _wait(self, metric: Metric) -> None:
        """Count who waits when a request has arrived; arrivals and starts never go back."""
        self._starts.append(metric.t_start)
        while self._starts and self._starts[0] <= metric.t:
            self._starts.popleft()
        self.waiting_most = max(self.waiting_most, len(self._starts))
        self.waiting_sum += len(self._starts)
