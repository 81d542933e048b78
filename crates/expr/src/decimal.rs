//! Functions of decimals with all 34 digits: powers, logarithms, trigonometry. Computations use 60
//! digits and round once at the end. Angles beyond 10^24 leave too few digits for their remainder;
//! they are computed as doubles.

use dec::{Context, Decimal as Digits, Rounding};
use mayfly_value::Number;
use mayfly_value::decimal::{Decimal, MAX_COEFFICIENT, MIN_EXPONENT};

/// A decimal with 20 units of three digits.
type Wide = Digits<20>;

const PI: &str = "3.14159265358979323846264338327950288419716939937510582097494459";

fn context() -> Context<Wide> {
    let mut context = Context::<Wide>::default();
    // The library requires these limits for exponentials and logarithms; both are beyond the range
    // of decimals.
    let _ = context.set_max_exponent(999_999);
    let _ = context.set_min_exponent(-999_999);
    context
}

fn widen(value: Decimal) -> Wide {
    Wide::from(value.to_dec())
}

fn narrow(value: Wide) -> Decimal {
    Decimal::from_dec(Context::<dec::Decimal128>::default().from_decimal(&value))
}

fn constant(text: &str) -> Wide {
    context().parse(text).unwrap_or_else(|_| Wide::nan())
}

type Binary = fn(&mut Context<Wide>, &mut Wide, &Wide);

fn binary(operation: Binary, left: &Wide, right: &Wide) -> Wide {
    let mut result = *left;
    operation(&mut context(), &mut result, right);
    result
}

fn add(left: &Wide, right: &Wide) -> Wide {
    binary(Context::<Wide>::add, left, right)
}

fn sub(left: &Wide, right: &Wide) -> Wide {
    binary(Context::<Wide>::sub, left, right)
}

fn mul(left: &Wide, right: &Wide) -> Wide {
    binary(Context::<Wide>::mul, left, right)
}

fn div(left: &Wide, right: &Wide) -> Wide {
    binary(Context::<Wide>::div, left, right)
}

fn unary(operation: fn(&mut Context<Wide>, &mut Wide), value: &Wide) -> Wide {
    let mut result = *value;
    operation(&mut context(), &mut result);
    result
}

fn root(value: &Wide) -> Wide {
    let mut result = *value;
    context().sqrt(&mut result);
    result
}

fn whole(value: i64) -> Wide {
    Wide::from(value)
}

/// The square root.
pub(crate) fn sqrt(value: Decimal) -> Decimal {
    narrow(root(&widen(value)))
}

/// The exponential function.
pub(crate) fn exp(value: Decimal) -> Decimal {
    narrow(unary(Context::<Wide>::exp, &widen(value)))
}

/// The natural logarithm.
pub(crate) fn ln(value: Decimal) -> Decimal {
    narrow(unary(Context::<Wide>::ln, &widen(value)))
}

/// The logarithm to base 10.
pub(crate) fn log10(value: Decimal) -> Decimal {
    narrow(unary(Context::<Wide>::log10, &widen(value)))
}

/// The logarithm to any base.
pub(crate) fn log(value: Decimal, base: Decimal) -> Decimal {
    let quotient =
        div(&unary(Context::<Wide>::ln, &widen(value)), &unary(Context::ln, &widen(base)));
    filled(narrow(quotient))
}

/// The power of a base.
pub(crate) fn pow(base: Decimal, exponent: Decimal) -> Decimal {
    filled(narrow(binary(Context::<Wide>::pow, &widen(base), &widen(exponent))))
}

/// The same number with all 34 digits, as powers and logarithms have them.
fn filled(value: Decimal) -> Decimal {
    match value {
        Decimal::Finite { negative, mut coefficient, mut exponent } if coefficient > 0 => {
            while exponent > MIN_EXPONENT && coefficient <= MAX_COEFFICIENT / 10 {
                coefficient *= 10;
                exponent -= 1;
            }
            Decimal::Finite { negative, coefficient, exponent }
        }
        other => other,
    }
}

/// Rounds to a number of decimal places, which may be negative; `None` when 34 digits are too few
/// for the result.
pub(crate) fn rounded(value: Decimal, places: i32, rounding: Rounding) -> Option<Decimal> {
    let mut context = Context::<dec::Decimal128>::default();
    context.set_rounding(rounding);
    let unit = Decimal::Finite { negative: false, coefficient: 1, exponent: -places };
    let result = context.quantize(value.to_dec(), unit.to_dec());
    (!context.status().invalid_operation()).then(|| Decimal::from_dec(result))
}

/// Rounds to an integer.
pub(crate) fn integral(value: Decimal, rounding: Rounding) -> Decimal {
    match value {
        Decimal::Finite { exponent, .. } if exponent < 0 => {
            rounded(value, 0, rounding).unwrap_or(value)
        }
        _ => value,
    }
}

/// One of the functions of [`trigonometric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the functions")]
pub(crate) enum Function {
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    ToRadians,
    ToDegrees,
}

/// Applies a function to a finite decimal.
pub(crate) fn trigonometric(function: Function, value: Decimal) -> Decimal {
    let x = widen(value);
    let by_double = |of: fn(f64) -> f64| Number::Double(of(value.to_f64())).to_decimal();
    let far = value.to_f64().abs() >= 1e24;
    let one = whole(1);
    let exponential = |sign: i64| {
        let e = unary(Context::<Wide>::exp, &x);
        div(&add(&e, &div(&whole(sign), &e)), &whole(2))
    };
    narrow(match function {
        Function::Sin if far => return by_double(f64::sin),
        Function::Cos if far => return by_double(f64::cos),
        Function::Tan if far => return by_double(f64::tan),
        Function::Sin => sin(&x),
        Function::Cos => cos(&x),
        Function::Tan => div(&sin(&x), &cos(&x)),
        Function::Asin => asin(&x),
        Function::Acos if value.to_f64() == 1.0 && sub(&one, &x).is_zero() => whole(0),
        Function::Acos => sub(&div(&constant(PI), &whole(2)), &asin(&x)),
        Function::Atan => atan(&x),
        // Near zero the difference of exponentials loses digits; the series does not.
        Function::Sinh if value.to_f64().abs() < 0.5 => series(&x, 1),
        Function::Sinh => exponential(-1),
        Function::Cosh => exponential(1),
        Function::Tanh if value.to_f64().abs() < 0.5 => div(&series(&x, 1), &exponential(1)),
        Function::Tanh if value.to_f64().abs() > 1000.0 => {
            whole(if x.is_negative() { -1 } else { 1 })
        }
        Function::Tanh => div(&exponential(-1), &exponential(1)),
        Function::Asinh => {
            // The function is odd: the logarithm of a sum of positive terms loses no digits.
            let size = unary(Context::<Wide>::abs, &x);
            let sum = add(&size, &root(&add(&mul(&size, &size), &one)));
            let result =
                if value.to_f64().abs() < 1e-15 { size } else { unary(Context::<Wide>::ln, &sum) };
            if x.is_negative() { sub(&whole(0), &result) } else { result }
        }
        Function::Acosh => unary(Context::<Wide>::ln, &add(&x, &root(&sub(&mul(&x, &x), &one)))),
        Function::Atanh => {
            let ratio = div(&add(&one, &x), &sub(&one, &x));
            div(&unary(Context::<Wide>::ln, &ratio), &whole(2))
        }
        Function::ToRadians => div(&mul(&x, &constant(PI)), &whole(180)),
        Function::ToDegrees => div(&mul(&x, &whole(180)), &constant(PI)),
    })
}

/// The angle of a point, in radians.
pub(crate) fn atan2(y: Decimal, x: Decimal) -> Decimal {
    let (wide_y, wide_x) = (widen(y), widen(x));
    let special = !wide_y.is_finite() || !wide_x.is_finite() || wide_y.is_zero();
    if special || wide_x.is_zero() {
        return Number::Double(y.to_f64().atan2(x.to_f64())).to_decimal();
    }
    let angle = atan(&div(&wide_y, &wide_x));
    narrow(match (wide_x.is_negative(), wide_y.is_negative()) {
        (false, _) => angle,
        (true, false) => add(&angle, &constant(PI)),
        (true, true) => sub(&angle, &constant(PI)),
    })
}

/// `x + sign x^3/3! + x^5/5! + ...`: the sine for sign -1, the hyperbolic sine for 1.
fn series(x: &Wide, sign: i64) -> Wide {
    let square = mul(&mul(x, x), &whole(sign));
    let (mut sum, mut term) = (*x, *x);
    for n in (2..200).step_by(2) {
        term = div(&mul(&term, &square), &whole(n * (n + 1)));
        let next = add(&sum, &term);
        if next == sum {
            break;
        }
        sum = next;
    }
    sum
}

fn sin(x: &Wide) -> Wide {
    // Reduces the angle to half a turn around zero, then to a ninth of it by applying sin 3a = 3
    // sin a - 4 sin^3 a twice.
    let turn = mul(&constant(PI), &whole(2));
    let mut reduced = *x;
    context().rem_near(&mut reduced, &turn);
    let mut result = series(&div(&reduced, &whole(9)), -1);
    for _ in 0..2 {
        let cube = mul(&mul(&result, &result), &result);
        result = sub(&mul(&result, &whole(3)), &mul(&cube, &whole(4)));
    }
    result
}

fn cos(x: &Wide) -> Wide {
    if x.is_zero() {
        return whole(1);
    }
    sin(&add(x, &div(&constant(PI), &whole(2))))
}

fn asin(x: &Wide) -> Wide {
    let one = whole(1);
    let side = root(&sub(&one, &mul(x, x)));
    if side.is_zero() {
        let quarter = div(&constant(PI), &whole(2));
        return if x.is_negative() { sub(&whole(0), &quarter) } else { quarter };
    }
    atan(&div(x, &side))
}

fn atan(x: &Wide) -> Wide {
    if x.is_infinite() {
        let quarter = div(&constant(PI), &whole(2));
        return if x.is_negative() { sub(&whole(0), &quarter) } else { quarter };
    }
    // Halves the angle until the series is short: atan x = 2 atan(x / (1 + sqrt(1 + x^2))).
    let mut small = *x;
    for _ in 0..6 {
        let length = root(&add(&whole(1), &mul(&small, &small)));
        small = div(&small, &add(&whole(1), &length));
    }
    let square = mul(&small, &small);
    let (mut sum, mut power) = (small, small);
    for n in 1..60 {
        power = sub(&whole(0), &mul(&power, &square));
        sum = add(&sum, &div(&power, &whole(2 * n + 1)));
    }
    mul(&sum, &whole(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digits from published tables.
    #[test]
    fn functions_have_their_digits() {
        let decimal = |text: &str| Decimal::parse(text).unwrap();
        let near = |found: Decimal, expected: &str| {
            let mut context = Context::<dec::Decimal128>::default();
            let difference = context.sub(found.to_dec(), decimal(expected).to_dec());
            let difference = Decimal::from_dec(difference).to_f64();
            assert!(difference.abs() < 2e-33, "{found:?} is not {expected}");
        };
        near(sqrt(decimal("2")), "1.414213562373095048801688724209698");
        near(exp(decimal("1")), "2.718281828459045235360287471352662");
        near(ln(decimal("10")), "2.302585092994045684017991454684364");
        near(trigonometric(Function::Sin, decimal("1")), "0.8414709848078965066525023216302990");
        near(trigonometric(Function::Cos, decimal("1")), "0.5403023058681397174009366074429766");
        near(trigonometric(Function::Atan, decimal("1")), "0.7853981633974483096156608458198757");
        near(trigonometric(Function::Asin, decimal("1")), "1.570796326794896619231321691639751");
        near(trigonometric(Function::Acos, decimal("-1")), "3.141592653589793238462643383279503");
        near(trigonometric(Function::Sinh, decimal("1")), "1.175201193643801456882381850595601");
        near(trigonometric(Function::Tanh, decimal("1")), "0.7615941559557648881194582826047936");
        near(trigonometric(Function::Asinh, decimal("1")), "0.8813735870195430252326093249797923");
        near(trigonometric(Function::Acosh, decimal("2")), "1.316957896924816708625046347307968");
        near(
            trigonometric(Function::Atanh, decimal("0.5")),
            "0.5493061443340548456976226184612628",
        );
        near(atan2(decimal("1"), decimal("-1")), "2.356194490192344928846982537459627");
    }
}
