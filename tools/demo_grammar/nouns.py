"""Nouns and names. One line each: gender, German singular and plural, English, kinds.

Gender ``m``, ``f`` or ``n``; ``mw`` is a weak masculine (den Jungen, dem Jungen). A plural of ``-`` means a
mass noun. English irregular plurals follow a slash. Kinds say what can be done with the thing: verbs ask for
them. Of a place, ``at=in,in,in`` gives the German prepositions of rest and of direction, and the English one
of rest.
"""

NOUNS = """
m Mann Männer | man/men | person grown
f Frau Frauen | woman/women | person grown
n Kind Kinder | child/children | person
mw Junge Jungen | boy | person
n Mädchen Mädchen | girl | person
m Lehrer Lehrer | teacher | person grown job
f Lehrerin Lehrerinnen | teacher | person grown job
m Arzt Ärzte | doctor | person grown job
f Ärztin Ärztinnen | doctor | person grown job
mw Student Studenten | student | person grown job
f Studentin Studentinnen | student | person grown job
m Bäcker Bäcker | baker | person grown job
m Koch Köche | cook | person grown job
f Köchin Köchinnen | cook | person grown job
mw Bauer Bauern | farmer | person grown job
f Bäuerin Bäuerinnen | farmer | person grown job
mw Polizist Polizisten | policeman/policemen | person grown job
f Polizistin Polizistinnen | policewoman/policewomen | person grown job
m Verkäufer Verkäufer | salesman/salesmen | person grown job
f Verkäuferin Verkäuferinnen | saleswoman/saleswomen | person grown job
m Maler Maler | painter | person grown job
f Malerin Malerinnen | painter | person grown job
m Sänger Sänger | singer | person grown job
f Sängerin Sängerinnen | singer | person grown job
m Schüler Schüler | pupil | person
f Schülerin Schülerinnen | pupil | person
m Ingenieur Ingenieure | engineer | person grown job
m Richter Richter | judge | person grown job
f Richterin Richterinnen | judge | person grown job
mw Nachbar Nachbarn | neighbour | person grown relation
f Nachbarin Nachbarinnen | neighbour | person grown relation
mw Kollege Kollegen | colleague | person grown relation
f Kollegin Kolleginnen | colleague | person grown relation
m Freund Freunde | friend | person relation
f Freundin Freundinnen | friend | person relation
m Vater Väter | father | person grown relation one
f Mutter Mütter | mother | person grown relation one
m Bruder Brüder | brother | person relation
f Schwester Schwestern | sister | person relation
m Sohn Söhne | son | person relation
f Tochter Töchter | daughter | person relation
m Onkel Onkel | uncle | person grown relation
f Tante Tanten | aunt | person grown relation
m Großvater Großväter | grandfather | person grown relation
f Großmutter Großmütter | grandmother | person grown relation
m Gast Gäste | guest | person grown
mw Tourist Touristen | tourist | person grown
m Hund Hunde | dog | animal pet
f Katze Katzen | cat | animal pet
n Pferd Pferde | horse | animal pet
f Kuh Kühe | cow | animal pet
m Vogel Vögel | bird | animal
f Maus Mäuse | mouse/mice | animal
n Schaf Schafe | sheep/sheep | animal pet
f Ente Enten | duck | animal
mw Bär Bären | bear | animal
mw Elefant Elefanten | elephant | animal
mw Affe Affen | monkey | animal
n Kaninchen Kaninchen | rabbit | animal pet
n Brot - | bread | food mass
m Apfel Äpfel | apple | food
f Birne Birnen | pear | food
f Banane Bananen | banana | food
f Orange Orangen | orange | food
f Tomate Tomaten | tomato/tomatoes | food cooked
f Kartoffel Kartoffeln | potato/potatoes | food cooked
n Ei Eier | egg | food cooked
m Kuchen Kuchen | cake | food baked
f Torte Torten | tart | food baked
f Suppe Suppen | soup | food cooked
m Salat Salate | salad | food
m Fisch Fische | fish/fish | food cooked
m Käse - | cheese | food mass
n Fleisch - | meat | food mass cooked
m Reis - | rice | food mass cooked
n Wasser - | water | drink mass
m Kaffee - | coffee | drink mass
m Tee - | tea | drink mass
f Milch - | milk | drink mass
m Saft - | juice | drink mass
m Wein - | wine | drink mass
n Bier - | beer | drink mass
n Buch Bücher | book | text thing gift print
f Zeitung Zeitungen | newspaper | text thing print
m Brief Briefe | letter | text written thing
f Karte Karten | map | text thing print
m Roman Romane | novel | text written thing gift print
n Gedicht Gedichte | poem | text written
m Bericht Berichte | report | text written
f Geschichte Geschichten | story/stories | text told
n Märchen Märchen | fairy tale | text told
n Geheimnis Geheimnisse | secret | told idea
f Frage Fragen | question | idea
n Problem Probleme | problem | idea riddle
n Rätsel Rätsel | riddle | idea riddle
f Antwort Antworten | answer | idea
m Plan Pläne | plan | idea
f Idee Ideen | idea | idea
f Regel Regeln | rule | idea
n Lied Lieder | song | music
n Bild Bilder | picture | art thing gift
m Tisch Tische | table | surface furniture
m Stuhl Stühle | chair | surface furniture seat
n Sofa Sofas | sofa | surface furniture seat
n Bett Betten | bed | surface furniture seat
n Regal Regale | shelf/shelves | surface furniture
f Bank Bänke | bench | surface furniture seat
m Schrank Schränke | cupboard | furniture openable
f Lampe Lampen | lamp | device furniture upright
m Computer Computer | computer | device gift upright
n Radio Radios | radio | device gift upright
m Fernseher Fernseher | television | device upright
f Uhr Uhren | clock | device gift
f Kamera Kameras | camera | device gift thing
n Handy Handys | mobile phone | device gift thing
f Maschine Maschinen | machine | device
f Tür Türen | door | openable
n Fenster Fenster | window | openable breakable
f Tasche Taschen | bag | thing openable
m Koffer Koffer | suitcase | thing openable upright
f Flasche Flaschen | bottle | thing openable breakable upright
f Kiste Kisten | box | thing openable upright
m Schlüssel Schlüssel | key | thing
n Messer Messer | knife/knives | thing
m Löffel Löffel | spoon | thing
f Tasse Tassen | cup | thing breakable gift upright
m Teller Teller | plate | thing breakable upright
n Glas Gläser | glass | thing breakable upright
m Spiegel Spiegel | mirror | furniture breakable
m Ball Bälle | ball | thing toy gift
f Puppe Puppen | doll | thing toy gift
m Ring Ringe | ring | thing gift
f Blume Blumen | flower | plant gift thing
f Rose Rosen | rose | plant gift
m Baum Bäume | tree | plant
f Geige Geigen | violin | instrument
f Gitarre Gitarren | guitar | instrument gift
n Klavier Klaviere | piano | instrument
f Flöte Flöten | flute | instrument
m Mantel Mäntel | coat | clothes
f Jacke Jacken | jacket | clothes
n Hemd Hemden | shirt | clothes
n Kleid Kleider | dress | clothes
m Rock Röcke | skirt | clothes
m Hut Hüte | hat | clothes gift
m Pullover Pullover | sweater | clothes gift
m Schuh Schuhe | shoe | clothes
n Auto Autos | car | vehicle
n Fahrrad Fahrräder | bicycle | vehicle gift
m Zug Züge | train | transport
m Bus Busse | bus | transport
n Flugzeug Flugzeuge | plane | transport
n Schiff Schiffe | ship | transport
n Boot Boote | boat | vehicle
n Motorrad Motorräder | motorcycle | vehicle
n Haus Häuser | house | building room at=in,in,in home
f Wohnung Wohnungen | flat | building room at=in,in,in home
n Hotel Hotels | hotel | building at=in,in,in home
f Brücke Brücken | bridge | building at=auf,zu,on
f Schule Schulen | school | building at=in,in,in
f Kirche Kirchen | church | building at=in,in,in
n Museum Museen | museum | building sight at=in,in,in
f Fabrik Fabriken | factory/factories | building at=in,in,in
n Schloss Schlösser | castle | building sight at=in,in,in home
m Turm Türme | tower | building sight at=auf,auf,on tall
n Krankenhaus Krankenhäuser | hospital | building at=in,in,in
m Bahnhof Bahnhöfe | station | building at=an,zu,at
m Flughafen Flughäfen | airport | building at=an,zu,at
f Küche Küchen | kitchen | room at=in,in,in
n Zimmer Zimmer | room | room at=in,in,in
n Büro Büros | office | room at=in,in,in
m Keller Keller | cellar | room at=in,in,in
m Garten Gärten | garden | room at=in,in,in
m Park Parks | park | sight at=in,in,in
m Wald Wälder | forest | sight at=in,in,in
m See Seen | lake | sight at=an,an,at
m Fluss Flüsse | river | sight at=an,an,at
m Strand Strände | beach | sight at=an,an,on
f Insel Inseln | island | sight at=auf,auf,on home
m Berg Berge | mountain | sight at=auf,auf,on tall
f Stadt Städte | city/cities | sight at=in,in,in home
n Dorf Dörfer | village | sight at=in,in,in home
m Markt Märkte | market | sight at=auf,auf,at
m Supermarkt Supermärkte | supermarket | building at=in,in,in
f Bäckerei Bäckereien | bakery/bakeries | building at=in,in,in
f Bibliothek Bibliotheken | library/libraries | building at=in,in,in
n Restaurant Restaurants | restaurant | building at=in,in,in
n Café Cafés | café | building at=in,in,in
n Kino Kinos | cinema | building at=in,in,in
n Theater Theater | theatre | building at=in,in,in
n Konzert Konzerte | concert | event
f Prüfung Prüfungen | exam | event
n Fest Feste | party/parties | event
m Kurs Kurse | course | event
f Reise Reisen | journey | event
m Film Filme | film | show
n Spiel Spiele | game | show event
"""

MEN = ("Paul", "Max", "Felix", "Jonas", "Lukas", "Peter", "Thomas", "Martin", "Daniel", "David")
WOMEN = ("Anna", "Maria", "Julia", "Laura", "Lena", "Sophie", "Clara", "Emma", "Eva", "Nina")

# Where German and English names differ the second one is English.
CITIES = (
    "Berlin",
    "Hamburg",
    "München/Munich",
    "Köln/Cologne",
    "Wien/Vienna",
    "Zürich/Zurich",
    "Paris",
    "London",
    "Rom/Rome",
    "Prag/Prague",
    "Italien/Italy",
    "Frankreich/France",
    "Spanien/Spain",
    "Norwegen/Norway",
)
