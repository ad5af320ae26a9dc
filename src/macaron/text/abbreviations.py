"""Abbreviations and first words of sentences, by language: what the sentence splitter knows about words.

English and German have lists of their own. For other languages Moses' list is added to the English one. An entry in
lower case matches any case, an entry with a capital only itself: "Mag." is a title, "mag." a verb. The full stop at
the end is left out, and inner spaces too: "z.B" is "z. B." as well.
"""

from dataclasses import dataclass
from functools import lru_cache
from string import ascii_lowercase


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True)
class Abbreviations:
    """The words of a language that decide about a full stop.

    :param titles: abbreviations before a name or in mid-sentence: they never end a sentence
    :param numbered: end none before a number
    :param others: may end a sentence, and often do not
    :param starters: words that begin a sentence far more often than they follow an abbreviation
    :param ordinals: words that follow an ordinal number, as in "3. Mai"
    :param before_ordinals: words before an ordinal number, as in "der 2. Weltkrieg"
    """

    titles: frozenset[str]
    numbered: frozenset[str]
    others: frozenset[str]
    starters: frozenset[str]
    ordinals: frozenset[str] = frozenset()
    before_ordinals: frozenset[str] = frozenset()


_ENGLISH = Abbreviations(
    titles=_words(
        "mr mrs ms mx dr drs prof profs rev revd fr st ste mt ft gen col lt maj capt cpt cmdr cdr adm sgt cpl pvt "
        "brig comdr supt insp hon gov pres sen sens rep reps messrs mme mlle mm msgr amb sec treas atty dir e.g "
        "i.e eg ie viz vs v cf c ca circa fl ph asst pfc sfc ens"
    ),
    numbered=_words(
        "no nos nr art arts p pp pg vol vols fig figs ch chap sec sect eq eqs ed eds op b d r n ss par ver ps pss"
    ),
    others=_words(
        "inc ltd co corp bros plc llc jr sr esq etc al dept univ assn assoc bldg ave blvd rd approx est orig repr "
        "abbr anon misc ph.d oz lb lbs ft yd sq gal hrs mph "
        "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thurs Fri Sat Sun Ill Calif Tex Fla "
        "Pa Penn Mass Conn Wash Ariz Colo Mich Minn Tenn Ore Okla Wis Ga Va"
    ),
    starters=_words(
        "The A An He She It They We You I This That These Those There Here His Her Its Their Our My Your In On At "
        "By For From With After Before When While As If Although Though However But And Or So Then Thus Since "
        "Because During Under Over Both Some Many Most Other Another Each All No Not What Where Who Why How Which "
        "One Two Also Today Later Despite According Following Once Until Unlike Such Do Does Did Is Are Was Were "
        "Can Could Would Should Have Has Had Let Please Yes Now Nobody Everyone Everybody Someone Nothing "
        "Everything Maybe Perhaps"
    ),
)

_GERMAN = Abbreviations(
    titles=_words(
        "dr dres prof Hr Hrn Fr Frl Mag Ing dipl Dipl.-Ing med phil rer h.c Hl St mr mrs ms bzw bspw ca zzgl inkl "
        "exkl vgl sog sogen evtl evt ggf gegebenenf gem bzgl betr urspr geb gest verh lat griech engl dt frz ital "
        "jmd jmdn jmdm jds etw insb insbes einschl ausschl durchschn ehem eigtl entspr zw z.B z.T z.Zt zzt z.Hd "
        "d.h d.i u.a u.U i.d.R i.A i.V i.H.v i.S.v o.g s.o s.u m.E u.E v.a a.d a.a.O vs"
    ).union(ascii_lowercase),  # all single letters, as in "z. B."
    numbered=_words(
        "nr nrn art abs kap bd bde abb tab ziff lfd tel fig vol aufl anm s max min rn jg hs vers ver no nos pp"
    ),
    others=_words(
        "usw usf etc u.s.w str mio mrd tsd std sek jh jhd jhdt v.Chr n.Chr Chr ff o.ä u.ä u.dgl dgl dergl co ltd "
        "inc corp jun jr sr e.V k.o mwst allg z.d.A "
        "Jan Jän Feb Febr Mär Apr Jun Jul Aug Sep Sept Okt Nov Dez Min Pl Sen Hrsg Red"
    ),
    starters=_words(
        "Der Die Das Den Dem Des Ein Eine Einen Einem Einer Eines Er Sie Es Wir Ihr Ich Du Man Dieser Diese Dieses "
        "Diesen Diesem Jener Jene Mein Meine Dein Deine Sein Seine Ihre Unser Unsere Euer Eure In Im Am An Auf Aus "
        "Bei Beim Mit Nach Von Vom Vor Zu Zum Zur Für Gegen Ohne Um Über Unter Während Wegen Trotz Durch Seit Bis "
        "Wenn Als Ob Weil Da Dann Danach Doch Aber Und Oder Denn Nun Nur Noch Auch So Wie Was Wer Wo Wann Warum "
        "Welche Welcher Welches Wem Wen Wessen Woher Wohin Hier Dort Heute Gestern Jetzt Schon Kein Keine Keiner "
        "Nicht Nichts Niemand Jemand Alle Alles Viele Einige Beide Jeder Jede Jedes Andere Damit Dabei Dazu Darum "
        "Deshalb Daher Trotzdem Außerdem Allerdings Jedoch Laut Obwohl Nachdem Bevor Sobald Ist Sind War Waren Hat "
        "Habe Haben Hast Bist Kann Kannst Können Bitte Ja Nein Vielleicht"
    ),
    ordinals=_words(
        "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember Jan Feb Apr Aug "
        "Sep Sept Okt Nov Dez Weltkrieg Jahrhundert Jh Jahrtausend Klasse Platz Rang Stock Etage Liga Bundesliga "
        "Runde Mal Advent Semester Quartal Halbjahr Geburtstag Jahrestag FC SC SV und oder bis"
    ),
    before_ordinals=_words(
        "der die das den dem des am vom zum zur im ins beim bis ab seit jede jeder jedes jeden jedem mein meine "
        "meinen meinem meiner meines dein deine deinen deinem deiner sein seine seinen seinem seiner seines ihr "
        "ihre ihren ihrem ihrer ihres unser unsere unseren unserem unserer euer eure ein eine einen einem einer "
        "dieser diese dieses diesen diesem und oder"
    ),
)


@lru_cache(maxsize=16)
def abbreviations(lang: str) -> Abbreviations:
    """The words of a language, given by its code."""
    if lang in ("en", "de"):
        return _ENGLISH if lang == "en" else _GERMAN
    try:
        from sacremoses.corpus import NonbreakingPrefixes

        entries = list(NonbreakingPrefixes().words(lang, ignore_lines_startswith="#"))
    except (ImportError, OSError, KeyError):  # no list for this language
        return _ENGLISH
    added = {entry.lower() for entry in entries if " " not in entry and len(entry) > 1 and not entry.isdigit()}
    return Abbreviations(**{**vars(_ENGLISH), "titles": _ENGLISH.titles | added})
