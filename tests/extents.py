"""Where the words of a figure stand."""

from itertools import combinations


def texts(figure):
    """Return every text that shows."""
    found = [*figure.texts]
    for legend in figure.legends:
        found += [*legend.get_texts(), legend.get_title()]
    for axes in figure.axes:
        found += [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = (tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)
            found += [tick.label1 for tick in ticks]
    return [text for text in found if text.get_visible() and text.get_text()]


def boxes(figure):
    """Return the extents, in pixels, of every text that shows."""
    figure.draw_without_rendering()
    return [text.get_window_extent() for text in texts(figure)]


def check_texts(figure):
    """Assert that every text is inside the figure and over no other one."""
    placed = list(zip(boxes(figure), texts(figure), strict=True))
    width, height = figure.bbox.size
    for box, text in placed:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for (box, text), (beside, other) in combinations(placed, 2):
        assert not box.shrunk(0.9, 0.9).overlaps(beside.shrunk(0.9, 0.9)), (text, other)


def check_data(figure):
    """Assert that nothing drawn is cut off by the limits of its axes."""
    for axes in figure.axes:
        for limits, drawn in (
            (axes.get_xlim(), axes.dataLim.intervalx),
            (axes.get_ylim(), axes.dataLim.intervaly),
        ):
            low, high = sorted(limits)
            slack = 1e-9 * (high - low)
            assert low - slack <= min(drawn), (axes.get_title(), limits, drawn)
            assert max(drawn) <= high + slack, (axes.get_title(), limits, drawn)
