//! Character classes.

use super::node::write_char;

/// The size of a range in a compiled pattern, in bytes.
const RANGE: usize = 48;

/// The size of a range outside of ASCII.
const WIDE: usize = 1_500;

/// The size of the class of a Unicode category or script.
const NAMED: usize = 45_000;

const SURROGATES: std::ops::RangeInclusive<u32> = 0xd800..=0xdfff;

/// A set of characters.
#[derive(Debug, Default)]
pub(super) struct Class {
    items: Vec<Item>,
    negated: bool,
}

#[derive(Debug)]
enum Item {
    Range(u32, u32),
    /// Groups such as `\w` and `[:alpha:]`, which may be negated on their own.
    Group(&'static [(u32, u32)], bool),
    /// A Unicode category or script, by a name that the `regex` crate knows.
    Named(String, bool),
}

impl Class {
    pub(super) fn group(ranges: &'static [(u32, u32)], negated: bool) -> Self {
        Self {
            items: vec![Item::Group(ranges, negated)],
            negated: false,
        }
    }

    pub(super) fn negate(&mut self) {
        self.negated = true;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.items.extend(other.items);
    }

    pub(super) fn range(&mut self, low: u32, high: u32) {
        // Text is valid UTF-8, so surrogates never match.
        let low = if SURROGATES.contains(&low) {
            SURROGATES.end() + 1
        } else {
            low
        };
        let high = if SURROGATES.contains(&high) {
            SURROGATES.start() - 1
        } else {
            high
        };
        if low <= high {
            self.items.push(Item::Range(low, high));
        }
    }

    /// Finds the class that `\p{name}` stands for.
    pub(super) fn unicode(name: &str, negated: bool) -> Option<Self> {
        let canonical = |name: &str| {
            let kept = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
            kept.collect::<String>().to_ascii_lowercase()
        };
        let name = canonical(name);
        let item = match name.as_str() {
            "any" => Item::Group(ANY, negated),
            "ascii" => Item::Group(&[(0, 0x7f)], negated),
            "assigned" => Item::Named("Cn".into(), !negated),
            "cs" | "surrogate" => Item::Group(&[], negated),
            "lc" | "casedletter" => Item::Named("Cased_Letter".into(), negated),
            _ => {
                let known = |list: &'static str| {
                    list.split_ascii_whitespace()
                        .find(|known| canonical(known) == name)
                };
                let alias = ALIASES.iter().find(|(alias, _)| canonical(alias) == name);
                let found = known(CATEGORIES)
                    .or_else(|| known(SCRIPTS))
                    .or_else(|| alias.map(|(_, category)| *category))?;
                Item::Named(found.into(), negated)
            }
        };
        Some(Self {
            items: vec![item],
            negated: false,
        })
    }

    /// Estimates the size of the class in a compiled pattern, in bytes.
    pub(super) fn size(&self) -> usize {
        let size = |item: &Item| match item {
            Item::Range(_, high) if *high < 0x80 => RANGE,
            Item::Range(..) => WIDE,
            Item::Group(ranges, negated) => ranges.len() * RANGE + if *negated { WIDE } else { 0 },
            Item::Named(..) => NAMED,
        };
        let own = if self.negated { WIDE } else { 0 };
        self.items.iter().map(size).sum::<usize>() + own
    }

    /// Writes the class in the syntax of the `regex` crate.
    pub(super) fn write(&self, out: &mut String) {
        open(out, self.negated, self.items.is_empty());
        for item in &self.items {
            match item {
                Item::Range(low, high) => write_range(out, *low, *high),
                Item::Group(ranges, negated) => {
                    open(out, *negated, ranges.is_empty());
                    for (low, high) in *ranges {
                        write_range(out, *low, *high);
                    }
                    out.push(']');
                }
                Item::Named(name, negated) => {
                    out.push_str(if *negated { "\\P{" } else { "\\p{" });
                    out.push_str(name);
                    out.push('}');
                }
            }
        }
        out.push(']');
    }
}

/// Opens a bracket. An empty one is written as the complement of everything.
fn open(out: &mut String, negated: bool, empty: bool) {
    out.push('[');
    if negated != empty {
        out.push('^');
    }
    if empty {
        write_range(out, 0, 0x0010_ffff);
    }
}

fn write_range(out: &mut String, low: u32, high: u32) {
    write_char(out, low);
    if high > low {
        out.push('-');
        write_char(out, high);
    }
}

pub(super) const ANY: &[(u32, u32)] = &[(0, 0x0010_ffff)];
pub(super) const NEWLINE: &[(u32, u32)] = &[(0xa, 0xa)];

/// Returns the ranges of `\d`, `\s` or `\w`.
pub(super) fn perl(letter: u8) -> Option<&'static [(u32, u32)]> {
    Some(match letter {
        b'd' => posix("digit")?,
        b's' => &[(0x9, 0xa), (0xc, 0xd), (0x20, 0x20)],
        b'w' => posix("word")?,
        _ => return None,
    })
}

/// Returns the ranges of a class such as `[:alpha:]`.
pub(super) fn posix(name: &str) -> Option<&'static [(u32, u32)]> {
    Some(match name {
        "alnum" => &[(0x30, 0x39), (0x41, 0x5a), (0x61, 0x7a)],
        "alpha" => &[(0x41, 0x5a), (0x61, 0x7a)],
        "ascii" => &[(0x0, 0x7f)],
        "blank" => &[(0x9, 0x9), (0x20, 0x20)],
        "cntrl" => &[(0x0, 0x1f), (0x7f, 0x7f)],
        "digit" => &[(0x30, 0x39)],
        "graph" => &[(0x21, 0x7e)],
        "lower" => &[(0x61, 0x7a)],
        "print" => &[(0x20, 0x7e)],
        "punct" => &[(0x21, 0x2f), (0x3a, 0x40), (0x5b, 0x60), (0x7b, 0x7e)],
        "space" => &[(0x9, 0xd), (0x20, 0x20)],
        "upper" => &[(0x41, 0x5a)],
        "word" => &[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)],
        "xdigit" => &[(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
        _ => return None,
    })
}

pub(super) const CATEGORIES: &str = "C Cc Cf Cn Co L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No \
    P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs";

const ALIASES: &[(&str, &str)] = &[
    ("Close_Punctuation", "Pe"),
    ("cntrl", "Cc"),
    ("Combining_Mark", "M"),
    ("Connector_Punctuation", "Pc"),
    ("Control", "Cc"),
    ("Currency_Symbol", "Sc"),
    ("Dash_Punctuation", "Pd"),
    ("Decimal_Number", "Nd"),
    ("digit", "Nd"),
    ("Enclosing_Mark", "Me"),
    ("Final_Punctuation", "Pf"),
    ("Format", "Cf"),
    ("Initial_Punctuation", "Pi"),
    ("Letter", "L"),
    ("Letter_Number", "Nl"),
    ("Line_Separator", "Zl"),
    ("Lowercase_Letter", "Ll"),
    ("Mark", "M"),
    ("Math_Symbol", "Sm"),
    ("Modifier_Letter", "Lm"),
    ("Modifier_Symbol", "Sk"),
    ("Nonspacing_Mark", "Mn"),
    ("Number", "N"),
    ("Open_Punctuation", "Ps"),
    ("Other", "C"),
    ("Other_Letter", "Lo"),
    ("Other_Number", "No"),
    ("Other_Punctuation", "Po"),
    ("Other_Symbol", "So"),
    ("Paragraph_Separator", "Zp"),
    ("Private_Use", "Co"),
    ("punct", "P"),
    ("Punctuation", "P"),
    ("Separator", "Z"),
    ("Space_Separator", "Zs"),
    ("Spacing_Mark", "Mc"),
    ("Symbol", "S"),
    ("Titlecase_Letter", "Lt"),
    ("Unassigned", "Cn"),
    ("Uppercase_Letter", "Lu"),
];

pub(super) const SCRIPTS: &str = "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak \
    Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian \
    Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot \
    Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs \
    Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi \
    Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic \
    Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana \
    Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Lao Latin Lepcha \
    Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean \
    Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive \
    Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari \
    Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki \
    Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian \
    Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene \
    Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra \
    Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese \
    Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut \
    Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho \
    Warang_Citi Yezidi Yi Zanabazar_Square";
