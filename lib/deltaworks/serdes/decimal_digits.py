"""How many digits a decimal number has, which its Python type does not say."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation


@dataclass(frozen=True)
class DecimalDigits:
    """Digits of a DECIMAL column: `amount: Annotated[Decimal, DecimalDigits(18, 2)]`; the default is (38, 18).

    Args:
        precision: all digits, up to 38.
        scale: digits after the point.
    """

    precision: int
    scale: int

    @property
    def step(self) -> Decimal:
        """The smallest number above 0."""
        return Decimal(1).scaleb(-self.scale)

    def context(self) -> Context:
        """Its `quantize(number, step)` raises `ArithmeticError` where a number would be rounded; NaN passes."""
        return Context(prec=self.precision, traps=[InvalidOperation, Inexact])
