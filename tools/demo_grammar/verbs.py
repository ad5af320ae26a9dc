"""Verbs. One line each: principal parts, English, frame, kinds of subject and of object.

German: infinitive (``auf|stehen`` separates, ``sich`` is reflexive), third person singular present, preterite
and participle of the plain verb, auxiliary ``h`` (haben) or ``s`` (sein). English: base, or base, past and
participle, then what follows the verb (``+off`` stands after a pronoun: turns it off). Frames:

    i           no complement                      d           dative object
    a           accusative object                  da          dative and accusative (gives ... to ...)
    p:auf,acc   preposition and its case           goal        direction, also to a town (goalcity)
    city        direction to a town                home        rest where one lives
    place       rest at a place                    on          rest on furniture
    put         accusative object and a surface    c           clause with dass; cq also with ob
    z           infinitive with zu

A trailing ``~`` marks states, which have no progressive form. Kinds joined by ``+`` are alternatives.
"""

VERBS = """
schlafen schläft schlief geschlafen h | sleep/slept/slept | i person+animal
lachen lacht lachte gelacht h | laugh | i person
weinen weint weinte geweint h | cry | i person
tanzen tanzt tanzte getanzt h | dance | i person
singen singt sang gesungen h | sing/sang/sung | i person
arbeiten arbeitet arbeitete gearbeitet h | work | i grown
schwimmen schwimmt schwamm geschwommen s | swim/swam/swum | i person
husten hustet hustete gehustet h | cough | i person
auf|stehen steht stand gestanden s | get/got/got up | i person
ein|schlafen schläft schlief geschlafen s | fall/fell/fallen asleep | i person+animal
auf|wachen wacht wachte gewacht s | wake/woke/woken up | i person+animal
zurück|kommen kommt kam gekommen s | come/came/come back | i person+pet
weg|laufen läuft lief gelaufen s | run/ran/run away | i person+animal
an|kommen kommt kam gekommen s | arrive | i person+transport
ab|fahren fährt fuhr gefahren s | depart | i transport
aus|gehen geht ging gegangen s | go/went/gone out | i grown
ein|kaufen kauft kaufte gekauft h | go/went/gone shopping | i person
sich beeilen beeilt beeilte beeilt h | hurry | i person
sich aus|ruhen ruht ruhte geruht h | rest | i person
sich an|ziehen zieht zog gezogen h | get/got/got dressed | i person
sich verstecken versteckt versteckte versteckt h | hide/hid/hidden | i person+animal
sehen sieht sah gesehen h | see/saw/seen | a~ person+animal person+animal+vehicle+sight
hören hört hörte gehört h | hear/heard/heard | a~ person person+animal+music
kaufen kauft kaufte gekauft h | buy/bought/bought | a grown food+print+object
verkaufen verkauft verkaufte verkauft h | sell/sold/sold | a grown food+clothes+vehicle+furniture+building
lesen liest las gelesen h | read/read/read | a person text
schreiben schreibt schrieb geschrieben h | write/wrote/written | a person written
essen isst aß gegessen h | eat/ate/eaten | a person+animal food
trinken trinkt trank getrunken h | drink/drank/drunk | a person drink
kochen kocht kochte gekocht h | cook | a grown cooked
backen backt backte gebacken h | bake | a grown baked
suchen sucht suchte gesucht h | look for | a person thing+pet+clothes+person
finden findet fand gefunden h | find/found/found | a~ person thing+pet+clothes
verlieren verliert verlor verloren h | lose/lost/lost | a~ person thing+clothes
lieben liebt liebte geliebt h | love | a~ person person+pet+music+sight
kennen kennt kannte gekannt h | know/knew/known | a~ person person+sight+text+music
brauchen braucht brauchte gebraucht h | need | a~ person object
haben hat hatte gehabt h | have/had/had | a~ person thing+clothes+vehicle+pet+idea+instrument
verstehen versteht verstand verstanden h | understand/understood/understood | a~ person idea+person+text
besuchen besucht besuchte besucht h | visit | a person person+sight
treffen trifft traf getroffen h | meet/met/met | a person person
fragen fragt fragte gefragt h | ask | a person person
tragen trägt trug getragen h | carry | a person thing+furniture
öffnen öffnet öffnete geöffnet h | open | a person openable
schließen schließt schloss geschlossen h | close | a person openable
reparieren repariert reparierte repariert h | repair | a grown vehicle+device
putzen putzt putzte geputzt h | clean | a grown room+furniture
waschen wäscht wusch gewaschen h | wash | a person clothes+vehicle+pet
malen malt malte gemalt h | paint | a person art+plant+animal+sight
bauen baut baute gebaut h | build/built/built | a grown building+furniture
vergessen vergisst vergaß vergessen h | forget/forgot/forgotten | a~ person thing+idea+music
füttern füttert fütterte gefüttert h | feed/fed/fed | a person pet
jagen jagt jagte gejagt h | chase | a animal animal
fangen fängt fing gefangen h | catch/caught/caught | a person+animal animal+toy
bestellen bestellt bestellte bestellt h | order | a grown food+drink+print
bezahlen bezahlt bezahlte bezahlt h | pay/paid/paid for | a grown food+drink+clothes+vehicle
beobachten beobachtet beobachtete beobachtet h | watch | a person+animal person+animal
stehlen stiehlt stahl gestohlen h | steal/stole/stolen | a person thing+vehicle+device
zerbrechen zerbricht zerbrach zerbrochen h | break/broke/broken | a person breakable
benutzen benutzt benutzte benutzt h | use | a person device+vehicle+thing
mieten mietet mietete gemietet h | rent | a grown vehicle+room
pflanzen pflanzt pflanzte gepflanzt h | plant | a grown plant
spielen spielt spielte gespielt h | play | a person instrument+music
lösen löst löste gelöst h | solve | a person riddle
an|rufen ruft rief gerufen h | call | a person person
ein|laden lädt lud geladen h | invite | a person person
ab|holen holt holte geholt h | pick +up | a grown person+print+pet
mit|bringen bringt brachte gebracht h | bring/brought/brought +along | a person food+gift+person+toy
mit|nehmen nimmt nahm genommen h | take/took/taken +along | a person thing+pet+person
aus|schalten schaltet schaltete geschaltet h | turn +off | a person device
ein|schalten schaltet schaltete geschaltet h | turn +on | a person device
auf|räumen räumt räumte geräumt h | tidy +up | a person room
weg|werfen wirft warf geworfen h | throw/threw/thrown +away | a person thing+food+clothes
an|ziehen zieht zog gezogen h | put/put/put +on | a person clothes
aus|ziehen zieht zog gezogen h | take/took/taken +off | a person clothes
zu|machen macht machte gemacht h | shut/shut/shut | a person openable
an|sehen sieht sah gesehen h | look at | a person art+animal+sight+building
kennen|lernen lernt lernte gelernt h | get/got/got to know | a person person
helfen hilft half geholfen h | help | d person person
danken dankt dankte gedankt h | thank | d person person
folgen folgt folgte gefolgt s | follow | d person+animal person+animal+vehicle
antworten antwortet antwortete geantwortet h | answer | d person person
vertrauen vertraut vertraute vertraut h | trust | d~ person person
gratulieren gratuliert gratulierte gratuliert h | congratulate | d person person
zu|hören hört hörte gehört h | listen to | d person person
geben gibt gab gegeben h | give/gave/given | da person thing+food+drink+gift
zeigen zeigt zeigte gezeigt h | show/showed/shown | da person sight+text+art+gift+room
bringen bringt brachte gebracht h | bring/brought/brought | da person food+drink+text+gift
schicken schickt schickte geschickt h | send/sent/sent | da person written+gift+clothes
leihen leiht lieh geliehen h | lend/lent/lent | da person print+vehicle+instrument+clothes
erklären erklärt erklärte erklärt h | explain | da person idea+text
erzählen erzählt erzählte erzählt h | tell/told/told | da person told
empfehlen empfiehlt empfahl empfohlen h | recommend | da person text+food+show+at
an|bieten bietet bot geboten h | offer | da person food+drink
zurück|geben gibt gab gegeben h | give/gave/given +back | da person print+thing+vehicle
vor|lesen liest las gelesen h | read/read/read +out | da person text
warten wartet wartete gewartet h | wait for | p:auf,acc person person+transport+show
denken denkt dachte gedacht h | think/thought/thought of | p:an,acc person person+idea+event+sight
sprechen spricht sprach gesprochen h | speak/spoke/spoken with | p:mit,dat person person
träumen träumt träumte geträumt h | dream of | p:von,dat person person+vehicle+sight+event
auf|passen passt passte gepasst h | look after | p:auf,acc person person+pet
teil|nehmen nimmt nahm genommen h | take/took/taken part in | p:an,dat person event
nach|denken denkt dachte gedacht h | think/thought/thought about | p:über,acc person idea+text+event
sich freuen freut freute gefreut h | look forward to | p:auf,acc person event+show
sich erinnern erinnert erinnerte erinnert h | remember | p:an,acc~ person person+event+sight+idea
sich kümmern kümmert kümmerte gekümmert h | take/took/taken care of | p:um,acc person person+pet+plant
gehen geht ging gegangen s | go/went/gone | goal person
laufen läuft lief gelaufen s | run/ran/run | goal person+animal
kommen kommt kam gekommen s | come/came/come | goal person
fahren fährt fuhr gefahren s | drive/drove/driven | goalcity grown
reisen reist reiste gereist s | travel | city person
fliegen fliegt flog geflogen s | fly/flew/flown | city person
zurück|fahren fährt fuhr gefahren s | drive/drove/driven back | goalcity grown
wohnen wohnt wohnte gewohnt h | live | homecity~ person
bleiben bleibt blieb geblieben s | stay | placecity person
sitzen sitzt saß gesessen h | sit/sat/sat | on person
stehen steht stand gestanden h | stand/stood/stood | on~ upright
liegen liegt lag gelegen h | lie/lay/lain | on~ thing+pet
legen legt legte gelegt h | put/put/put | put person thing+clothes
stellen stellt stellte gestellt h | place | put person upright
sagen sagt sagte gesagt h | say/said/said | c person
glauben glaubt glaubte geglaubt h | believe | c~ person
hoffen hofft hoffte gehofft h | hope | c~ person
wissen weiß wusste gewusst h | know/knew/known | cq~ person
erfahren erfährt erfuhr erfahren h | learn | cq~ person
versuchen versucht versuchte versucht h | try | z person
beginnen beginnt begann begonnen h | begin/began/begun | z person
versprechen verspricht versprach versprochen h | promise | z person
planen plant plante geplant h | plan | z person
"""
