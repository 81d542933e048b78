//! Matching with an automaton, which reads every letter of a text once.
//!
//! The two engines share a large language, but some constructs differ in meaning. The automaton's
//! parser parses the pattern, and its tree is rebuilt from constructs that are known to mean the
//! same in PCRE2 (UTF, without Unicode properties, lines end with a line feed). Any other construct
//! makes the automaton unusable for the pattern:
//!
//! * the option `x`, flags other than `i`, `m` and `s`, lookaround, back references, possessive and
//!   atomic groups, `\p`, `\B`, `\v`, `\Q` and other escapes of one engine;
//! * `$` without `m` that is not at the end of the pattern: it also matches before a final line
//!   feed, which the automaton cannot express. At the end of a pattern `\n?\z` is equivalent;
//! * `^` with `m` at the end of the pattern: PCRE2 does not match it after a line feed that ends
//!   the text;
//! * letters outside ASCII with the option `i`;
//! * classes with `-` where the engines may differ about ranges, nested classes, set operators;
//! * repetitions of repetitions and of assertions, zero repetitions (`{0}`), and numbers between
//!   spaces.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use regex_automata::Input;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassAsciiKind, ClassBracketed, ClassPerlKind, ClassSet, ClassSetItem,
    Concat, Flag, Flags, FlagsItemKind, Group, GroupKind, HexLiteralKind, Literal, LiteralKind,
    Repetition, RepetitionKind, RepetitionRange, SpecialLiteralKind,
};
use regex_syntax::hir::{self, Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, Look};

use crate::Options;

/// Deepest nesting of groups and classes.
const MAX_DEPTH: u32 = 50;

/// Largest automaton in bytes, without the states created for texts.
const MAX_AUTOMATON_BYTES: usize = 1 << 20;

/// Bytes for states created for texts.
const STATES_BYTES: usize = 2 << 20;

/// How often the state cache may be filled for one text. It bounds the work on a text that needs a
/// new state for every letter.
const MAX_CACHE_FILLS: usize = 4;

/// A pattern as an automaton.
pub(crate) struct Linear {
    automaton: Arc<DFA>,
    /// State caches, one for each concurrent search.
    states: Pool<Cache, NewStates>,
}

type NewStates = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

impl Linear {
    /// Compiles a pattern that PCRE2 accepts; `None` when it is outside the shared language, or too
    /// large.
    pub(crate) fn compile(pattern: &str, options: Options) -> Option<Linear> {
        if options.extended {
            return None;
        }
        let tree = ParserBuilder::new().nest_limit(MAX_DEPTH).build().parse(pattern).ok()?;
        let hir = Translator { pattern, options }.tree(&tree, NodeContext::WHOLE)?;
        let limits = thompson::Config::new()
            .nfa_size_limit(Some(MAX_AUTOMATON_BYTES))
            .which_captures(WhichCaptures::None);
        let nfa = thompson::Compiler::new().configure(limits).build_from_hir(&hir).ok()?;
        let limits = Config::new()
            .cache_capacity(STATES_BYTES)
            .minimum_cache_clear_count(Some(MAX_CACHE_FILLS));
        let automaton = Arc::new(DFA::builder().configure(limits).build_from_nfa(nfa).ok()?);
        let made_for = automaton.clone();
        let new_states: NewStates = Box::new(move || made_for.create_cache());
        Some(Linear { automaton, states: Pool::new(new_states) })
    }

    /// Whether the text contains a match; `None` when it needs too many states.
    pub(crate) fn is_match(&self, text: &str) -> Option<bool> {
        let input = Input::new(text).earliest(true);
        let found = self.automaton.try_search_fwd(&mut self.states.get(), &input);
        found.ok().map(|end| end.is_some())
    }
}

/// The context of a node in the pattern.
#[derive(Clone, Copy)]
struct NodeContext {
    /// It is at the end of the pattern.
    ends: bool,
    /// A letter must follow.
    letter_follows: bool,
}

impl NodeContext {
    const WHOLE: NodeContext = NodeContext { ends: true, letter_follows: false };
}

/// Rebuilds the tree. `options` are those in effect at the current node.
struct Translator<'p> {
    pattern: &'p str,
    options: Options,
}

impl Translator<'_> {
    fn tree(&mut self, ast: &Ast, context: NodeContext) -> Option<Hir> {
        Some(match ast {
            Ast::Empty(_) => Hir::empty(),
            Ast::Flags(set) => {
                self.set_flags(&set.flags)?;
                Hir::empty()
            }
            Ast::Literal(literal) => Hir::class(Class::Unicode(self.letter(letter(literal)?)?)),
            Ast::Dot(_) if self.options.dot_all => Hir::dot(Dot::AnyChar),
            Ast::Dot(_) => Hir::dot(Dot::AnyCharExceptLF),
            Ast::Assertion(assertion) => self.assertion(&assertion.kind, context)?,
            Ast::ClassPerl(class) => {
                Hir::class(Class::Unicode(perl_class(&class.kind, class.negated)))
            }
            Ast::ClassBracketed(class) => Hir::class(Class::Unicode(self.bracketed(class)?)),
            Ast::Repetition(repetition) => self.repetition(repetition, context)?,
            Ast::Group(group) => self.group(group, context)?,
            // Flags set in a branch remain in effect for later branches.
            Ast::Alternation(alternation) => {
                let branches = alternation.asts.iter().map(|branch| self.tree(branch, context));
                Hir::alternation(branches.collect::<Option<Vec<Hir>>>()?)
            }
            Ast::Concat(concat) => self.concat(concat, context)?,
            Ast::ClassUnicode(_) => return None,
        })
    }

    fn concat(&mut self, concat: &Concat, context: NodeContext) -> Option<Hir> {
        let last = concat.asts.len().saturating_sub(1);
        let last_letter = concat.asts.iter().rposition(takes_a_letter);
        let parts = concat.asts.iter().enumerate().map(|(at, part)| {
            let letter_follows =
                context.letter_follows || last_letter.is_some_and(|last| at < last);
            self.tree(part, NodeContext { ends: context.ends && at == last, letter_follows })
        });
        Some(Hir::concat(parts.collect::<Option<Vec<Hir>>>()?))
    }

    fn group(&mut self, group: &Group, context: NodeContext) -> Option<Hir> {
        let outside = self.options;
        if let GroupKind::NonCapturing(flags) = &group.kind {
            self.set_flags(flags)?;
        }
        let inside = self.tree(&group.ast, context);
        self.options = outside;
        inside
    }

    fn set_flags(&mut self, flags: &Flags) -> Option<()> {
        let mut on = true;
        for item in &flags.items {
            match item.kind {
                FlagsItemKind::Negation => on = false,
                FlagsItemKind::Flag(Flag::CaseInsensitive) => self.options.ignore_case = on,
                FlagsItemKind::Flag(Flag::MultiLine) => self.options.multi_line = on,
                FlagsItemKind::Flag(Flag::DotMatchesNewLine) => self.options.dot_all = on,
                FlagsItemKind::Flag(_) => return None,
            }
        }
        Some(())
    }

    fn assertion(&self, kind: &AssertionKind, context: NodeContext) -> Option<Hir> {
        let line_feed = || Hir::class(Class::Unicode(single('\n')));
        Some(match kind {
            AssertionKind::StartText => Hir::look(Look::Start),
            AssertionKind::StartLine if !self.options.multi_line => Hir::look(Look::Start),
            AssertionKind::StartLine if context.letter_follows => Hir::look(Look::StartLF),
            AssertionKind::EndText => Hir::look(Look::End),
            AssertionKind::EndLine if self.options.multi_line => Hir::look(Look::EndLF),
            AssertionKind::EndLine if context.ends => {
                let last_line_feed = Hir::repetition(hir::Repetition {
                    min: 0,
                    max: Some(1),
                    greedy: true,
                    sub: Box::new(line_feed()),
                });
                Hir::concat(vec![last_line_feed, Hir::look(Look::End)])
            }
            AssertionKind::WordBoundary => Hir::look(Look::WordAscii),
            _ => return None,
        })
    }

    fn repetition(&mut self, repetition: &Repetition, context: NodeContext) -> Option<Hir> {
        let repeats = match &*repetition.ast {
            Ast::Literal(_)
            | Ast::Dot(_)
            | Ast::ClassPerl(_)
            | Ast::ClassBracketed(_)
            | Ast::Group(_) => true,
            // A second `+` makes a repetition possessive in PCRE2.
            Ast::Repetition(_) | Ast::Assertion(_) | Ast::Empty(_) | Ast::Flags(_) => false,
            Ast::ClassUnicode(_) | Ast::Alternation(_) | Ast::Concat(_) => false,
        };
        let written = repetition.op.span;
        let written = self.pattern.get(written.start.offset..written.end.offset)?;
        if !repeats || written.contains(char::is_whitespace) {
            return None;
        }
        let (min, max) = match repetition.op.kind {
            RepetitionKind::ZeroOrOne => (0, Some(1)),
            RepetitionKind::ZeroOrMore => (0, None),
            RepetitionKind::OneOrMore => (1, None),
            RepetitionKind::Range(RepetitionRange::Exactly(times)) => (times, Some(times)),
            RepetitionKind::Range(RepetitionRange::AtLeast(least)) => (least, None),
            RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (least, Some(most)),
        };
        let inside = NodeContext { ends: false, ..context };
        let sub = Box::new(self.tree(&repetition.ast, inside)?);
        // PCRE2 matches `(a|\A){0}1` only at the start of a text.
        if max == Some(0) {
            return None;
        }
        Some(Hir::repetition(hir::Repetition { min, max, greedy: repetition.greedy, sub }))
    }

    fn bracketed(&self, class: &ClassBracketed) -> Option<ClassUnicode> {
        let ClassSet::Item(item) = &class.kind else { return None };
        let items = match item {
            ClassSetItem::Union(union) => union.items.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut out = ClassUnicode::empty();
        for (at, item) in items.iter().enumerate() {
            let part = match item {
                // Elsewhere it might be a range.
                ClassSetItem::Literal(it) if is_hyphen(it) && at != 0 && at + 1 != items.len() => {
                    return None;
                }
                ClassSetItem::Literal(literal) => self.letter(letter(literal)?)?,
                ClassSetItem::Range(range) if is_hyphen(&range.start) || is_hyphen(&range.end) => {
                    return None;
                }
                ClassSetItem::Range(range) => {
                    self.range(letter(&range.start)?, letter(&range.end)?)?
                }
                ClassSetItem::Ascii(class) if !class.negated => self.posix_class(&class.kind)?,
                ClassSetItem::Perl(class) => perl_class(&class.kind, class.negated),
                _ => return None,
            };
            out.union(&part);
        }
        let hyphens = items.iter().filter(|item| match item {
            ClassSetItem::Literal(literal) => is_hyphen(literal),
            _ => false,
        });
        if hyphens.count() > 1 {
            return None;
        }
        if class.negated {
            out.negate();
        }
        Some(out)
    }

    fn letter(&self, letter: char) -> Option<ClassUnicode> {
        self.range(letter, letter)
    }

    /// The letters of a range, in both cases with the option `i`.
    fn range(&self, from: char, to: char) -> Option<ClassUnicode> {
        let mut out = class(&[(from, to)]);
        if !self.options.ignore_case {
            return Some(out);
        }
        if !to.is_ascii() {
            return None;
        }
        for letter in (from..=to).filter(char::is_ascii_alphabetic) {
            out.union(&single(letter.to_ascii_lowercase()));
            out.union(&single(letter.to_ascii_uppercase()));
            match letter {
                // The Kelvin sign and the long s are other cases of these letters.
                'k' | 'K' => out.union(&single('\u{212A}')),
                's' | 'S' => out.union(&single('\u{17F}')),
                _ => {}
            }
        }
        Some(out)
    }

    fn posix_class(&self, kind: &ClassAsciiKind) -> Option<ClassUnicode> {
        let lower_and_upper = matches!(kind, ClassAsciiKind::Lower | ClassAsciiKind::Upper);
        if lower_and_upper && self.options.ignore_case {
            return None;
        }
        Some(class(match kind {
            ClassAsciiKind::Alnum => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
            ClassAsciiKind::Alpha => &[('A', 'Z'), ('a', 'z')],
            ClassAsciiKind::Ascii => &[('\0', '\x7F')],
            ClassAsciiKind::Blank => &[('\t', '\t'), (' ', ' ')],
            ClassAsciiKind::Cntrl => &[('\0', '\x1F'), ('\x7F', '\x7F')],
            ClassAsciiKind::Digit => &[('0', '9')],
            ClassAsciiKind::Graph => &[('!', '~')],
            ClassAsciiKind::Lower => &[('a', 'z')],
            ClassAsciiKind::Print => &[(' ', '~')],
            ClassAsciiKind::Punct => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
            ClassAsciiKind::Space => &[('\t', '\r'), (' ', ' ')],
            ClassAsciiKind::Upper => &[('A', 'Z')],
            ClassAsciiKind::Word => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
            ClassAsciiKind::Xdigit => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        }))
    }
}

/// The letter of a literal; `None` for escapes that differ between the engines.
fn letter(literal: &Literal) -> Option<char> {
    let same = match literal.kind {
        LiteralKind::Verbatim | LiteralKind::Meta | LiteralKind::Superfluous => true,
        LiteralKind::HexFixed(HexLiteralKind::X) | LiteralKind::HexBrace(HexLiteralKind::X) => true,
        LiteralKind::Special(
            SpecialLiteralKind::Bell
            | SpecialLiteralKind::FormFeed
            | SpecialLiteralKind::Tab
            | SpecialLiteralKind::LineFeed
            | SpecialLiteralKind::CarriageReturn,
        ) => true,
        // `\v` is a class in PCRE2.
        LiteralKind::Special(SpecialLiteralKind::VerticalTab | SpecialLiteralKind::Space)
        | LiteralKind::HexFixed(_)
        | LiteralKind::HexBrace(_)
        | LiteralKind::Octal => false,
    };
    same.then_some(literal.c)
}

fn is_hyphen(literal: &Literal) -> bool {
    literal.c == '-' && literal.kind == LiteralKind::Verbatim
}

/// Whether every match of a node contains a letter.
fn takes_a_letter(ast: &Ast) -> bool {
    match ast {
        Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => false,
        Ast::Literal(_)
        | Ast::Dot(_)
        | Ast::ClassUnicode(_)
        | Ast::ClassPerl(_)
        | Ast::ClassBracketed(_) => true,
        Ast::Repetition(repetition) => {
            let least = match repetition.op.kind {
                RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore => 0,
                RepetitionKind::OneOrMore => 1,
                RepetitionKind::Range(
                    RepetitionRange::Exactly(least)
                    | RepetitionRange::AtLeast(least)
                    | RepetitionRange::Bounded(least, _),
                ) => least,
            };
            least > 0 && takes_a_letter(&repetition.ast)
        }
        Ast::Group(group) => takes_a_letter(&group.ast),
        Ast::Alternation(alternation) => alternation.asts.iter().all(takes_a_letter),
        Ast::Concat(concat) => concat.asts.iter().any(takes_a_letter),
    }
}

/// `\d`, `\s`, `\w`, limited to ASCII.
fn perl_class(kind: &ClassPerlKind, negated: bool) -> ClassUnicode {
    let mut out = class(match kind {
        ClassPerlKind::Digit => &[('0', '9')],
        ClassPerlKind::Space => &[('\t', '\r'), (' ', ' ')],
        ClassPerlKind::Word => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
    });
    if negated {
        out.negate();
    }
    out
}

fn single(letter: char) -> ClassUnicode {
    class(&[(letter, letter)])
}

fn class(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(from, to)| ClassUnicodeRange::new(*from, *to)))
}
