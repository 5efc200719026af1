"""A figure that a notebook shows as the value of a cell, also without `%matplotlib inline` and without pyplot."""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure of matplotlib, of which it is one in all else."""

    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        self.savefig(drawn, format="png")
        return drawn.getvalue()
