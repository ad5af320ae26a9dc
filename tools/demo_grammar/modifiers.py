"""Adjectives, adverbs, times, prepositions and conjunctions.

Adjectives, one line each: German, its comparative, English, its comparative (``more`` for more ..., ``-`` for
none), kinds that it can describe. A stem that changes under an ending follows a slash: hoch/hoh-.
"""

ADJECTIVES = """
groß größer big bigger | animal object plant building room sight openable
klein kleiner small smaller | animal object plant building room sight openable
alt älter old older | animal object plant building text person instrument sight music
jung jünger young younger | person animal
neu neuer new newer | object building text instrument music idea event openable
schön schöner beautiful more | animal plant building clothes sight music art event room gift
hässlich hässlicher ugly uglier | clothes building furniture art vehicle
gut besser good better | person text food idea instrument music show device event
schlecht schlechter bad worse | text idea music show food
teuer/teur teurer expensive more | clothes vehicle furniture device instrument food building
billig billiger cheap cheaper | clothes vehicle furniture device food
rot - red - | clothes vehicle thing furniture plant
blau - blue - | clothes vehicle thing furniture
grün - green - | clothes vehicle thing furniture
gelb - yellow - | clothes vehicle thing furniture plant
schwarz - black - | clothes vehicle thing furniture animal
weiß - white - | clothes vehicle thing furniture animal plant
braun - brown - | clothes thing furniture animal
schnell schneller fast faster | vehicle animal transport
langsam langsamer slow slower | vehicle animal transport
stark stärker strong stronger | person animal drink
schwach schwächer weak weaker | person animal
klug klüger clever cleverer | person animal
freundlich freundlicher friendly friendlier | person animal
nett netter nice nicer | person
reich reicher rich richer | person
arm ärmer poor poorer | person
glücklich glücklicher happy happier | person
traurig trauriger sad sadder | person text music show
müde müder tired more | person animal
krank kränker sick sicker | person animal
hungrig hungriger hungry hungrier | person animal
durstig durstiger thirsty thirstier | person animal
fleißig fleißiger hard-working more | person
faul fauler lazy lazier | person animal
berühmt berühmter famous more | person sight building text music
ruhig ruhiger quiet quieter | person animal sight room
laut lauter loud louder | person music device transport
lang länger long longer | text show music event clothes
kurz kürzer short shorter | text show music event clothes
interessant interessanter interesting more | text idea show person sight event
langweilig langweiliger boring more | text show event
wichtig wichtiger important more | idea text person event
schwierig schwieriger difficult more | idea text event
einfach einfacher simple simpler | idea text
lustig lustiger funny funnier | person text show music animal
schwer schwerer heavy heavier | thing furniture clothes openable
leicht leichter light lighter | thing clothes
warm wärmer warm warmer | clothes food drink room
kalt kälter cold colder | food drink room
heiß heißer hot hotter | food drink
frisch frischer fresh fresher | food
süß süßer sweet sweeter | food drink
sauber sauberer clean cleaner | room clothes thing furniture
schmutzig schmutziger dirty dirtier | room clothes thing vehicle animal openable
kaputt - broken - | device vehicle thing furniture
dunkel/dunkl dunkler dark darker | room building sight
hoch/hoh höher high higher | tall
seltsam seltsamer strange stranger | person text idea animal show
mutig mutiger brave braver | person animal
vorsichtig vorsichtiger careful more | person animal
"""

# German, English.
FREQUENCIES = (
    ("oft", "often"),
    ("immer", "always"),
    ("manchmal", "sometimes"),
    ("selten", "rarely"),
    ("nie", "never"),
)

# German, English.
MANNERS = (
    ("schnell", "quickly"),
    ("langsam", "slowly"),
    ("leise", "quietly"),
    ("vorsichtig", "carefully"),
    ("sofort", "immediately"),
    ("allein", "alone"),
    ("zusammen", "together"),
)

# German, English, when: p(ast), n(ow), f(uture), h(abit).
TIMES = """
heute | today | pnf
gestern | yesterday | p
vorgestern | the day before yesterday | p
morgen | tomorrow | f
übermorgen | the day after tomorrow | f
bald | soon | f
damals | back then | p
am Abend | in the evening | ph
am Morgen | in the morning | ph
am Nachmittag | in the afternoon | ph
in der Nacht | at night | ph
am Wochenende | at the weekend | phf
heute Abend | this evening | f
gestern Abend | yesterday evening | p
letzte Woche | last week | p
letzten Monat | last month | p
letztes Jahr | last year | p
nächste Woche | next week | f
nächsten Monat | next month | f
nächstes Jahr | next year | f
jeden Tag | every day | h
jede Woche | every week | h
jeden Morgen | every morning | h
im Sommer | in the summer | phf
im Winter | in the winter | phf
im Frühling | in the spring | phf
im Herbst | in the autumn | phf
am Montag | on Monday | pf
am Dienstag | on Tuesday | pf
am Mittwoch | on Wednesday | pf
am Donnerstag | on Thursday | pf
am Freitag | on Friday | pf
am Samstag | on Saturday | pf
am Sonntag | on Sunday | pf
"""

# Units of "vor zwei Tagen" (two days ago) and "in zwei Tagen" (in two days): dative plural, English plural.
UNITS = (
    ("Tagen", "days"),
    ("Wochen", "weeks"),
    ("Monaten", "months"),
    ("Jahren", "years"),
    ("Stunden", "hours"),
    ("Minuten", "minutes"),
)

# Prepositions of position: dative at rest, accusative in motion.
POSITIONS = (
    ("auf", "on"),
    ("unter", "under"),
    ("neben", "next to"),
    ("hinter", "behind"),
    ("vor", "in front of"),
)

# Activities that go with "gern" (likes to ...).
PLEASANT_VERBS = """
tanzen singen schwimmen lesen schreiben kochen backen malen einkaufen ausgehen spielen trinken essen kaufen
besuchen treffen füttern schlafen arbeiten
"""

# States that one can (können) attain.
PERCEPTION_VERBS = "sehen hören finden verstehen"

# Verbs that already say where to, or that happen nowhere in particular.
PLACELESS_VERBS = "zurückkommen weglaufen abfahren ausgehen einkaufen besuchen"

# States that come and go: one can be often tired, but not often tall.
PASSING_STATES = """
müde krank hungrig durstig traurig glücklich laut ruhig faul fleißig freundlich nett vorsichtig lustig kalt warm
heiß frisch schmutzig sauber kaputt langsam schnell mutig teuer billig
"""
