"""Short passages in many languages, to be put into English."""

import random
from collections.abc import Iterator

_FORMS = (
    "Translate {language} to English: {text}",
    "Translate this {language} text into English.\n\n{text}",
    "{text}\n\nWhat does that mean in English?",
    "Give me an English translation of the following {language} passage:\n\n{text}",
    "English translation, please:\n\n{text}",
    "My {language} is poor. What does this say?\n\n{text}",
    "Put this into good English.\n\n{text}",
)
_PLACES = (
    "Berlin",
    "Lima",
    "Oslo",
    "Madrid",
    "Porto",
    "Toronto",
    "Osaka",
    "Nairobi",
    "Boston",
    "Lyon",
    "Graz",
    "Turin",
)
_SENTENCES = {
    "German": (
        "Der Zug nach {place} fährt heute {n} Minuten später ab, weil ein Baum auf den Gleisen liegt.",
        "Meine Tante hat vor {n} Jahren ein kleines Haus in {place} gekauft und es ganz allein renoviert.",
        "Die Stadt will bis {year} alle Busse durch elektrische ersetzen.",
        "Im Hof steht ein alter Apfelbaum, der jedes Jahr weniger Früchte trägt.",
        "Wer morgens zu spät kommt, muss am Abend länger bleiben.",
        "Der Arzt sagte, ich solle mehr schlafen und weniger Kaffee trinken.",
        "Nach dem Konzert haben wir noch lange über die Musik gesprochen.",
        "Die Regierung hat angekündigt, die Steuern um {n} Prozent zu senken.",
        "Er hat den Schlüssel verloren und musste durch das Fenster klettern.",
        "Das Museum in {place} ist montags geschlossen, aber der Garten ist immer offen.",
        "Die Forscher haben {n} neue Arten von Käfern beschrieben, die meisten davon im Regenwald.",
        "Könnten Sie mir bitte sagen, wo ich hier Fahrkarten bekomme?",
    ),
    "French": (
        "Le magasin du coin ferme à {n} heures, mais le patron reste souvent plus tard.",
        "J'ai appris à nager à {n} ans, dans un lac près de {place}.",
        "La mairie a promis de réparer le pont avant la fin de l'année {year}.",
        "Mon voisin joue du violon tous les soirs, et je commence à aimer cela.",
        "Il a plu pendant {n} jours, et la cave est pleine d'eau.",
        "Nous avons raté le dernier bus et nous sommes rentrés à pied.",
        "Selon une étude, les enfants lisent moins qu'il y a {n} ans.",
        "Elle garde dans un tiroir toutes les lettres de sa sœur.",
        "Pouvez-vous m'indiquer le chemin de la gare ?",
    ),
    "Spanish": (
        "Mi abuelo trabajó durante {n} años en una fábrica de {place}.",
        "El tren llegó tarde porque había nieve en las vías.",
        "Mañana empieza el mercado de libros en la plaza mayor.",
        "La escuela necesita {n} mesas nuevas y dos pizarras.",
        "No encuentro mis gafas, y sin ellas no puedo leer la carta.",
        "El gobierno anunció que el aeropuerto se abrirá en {year}.",
        "Cuando éramos niños, pasábamos el verano en casa de mis tíos.",
        "El perro ladra cada vez que pasa el cartero.",
        "¿Me podría decir a qué hora sale el autobús para {place}?",
    ),
    "Italian": (
        "Il negozio apre alle {n} e chiude quando il proprietario ha fame.",
        "Mio fratello vive a {place} da {n} anni e parla poco italiano.",
        "La biblioteca ha comprato {n} libri nuovi per i bambini.",
        "Ieri sera abbiamo mangiato in giardino, anche se faceva freddo.",
        "Il ponte sarà chiuso fino al {year} per lavori.",
        "Ho dimenticato l'ombrello sul treno per {place}.",
        "La nonna racconta sempre la stessa storia, ma ogni volta finisce in modo diverso.",
    ),
    "Portuguese": (
        "O meu vizinho cultiva tomates e oferece-nos {n} quilos por semana.",
        "O barco para a ilha sai às {n} horas, se o mar estiver calmo.",
        "Ela mudou-se para {place} para estudar medicina.",
        "A câmara quer plantar {n} árvores na avenida principal.",
        "Perdi o telemóvel e só o encontrei debaixo do sofá.",
        "As obras no hospital começaram em {year} e ainda não acabaram.",
    ),
    "Dutch": (
        "De winkel op de hoek verkoopt al {n} jaar hetzelfde brood.",
        "Mijn broer fietst elke dag {n} kilometer naar zijn werk.",
        "In {place} wordt een nieuw museum gebouwd dat in {year} opengaat.",
        "Het regende zo hard dat de straat onder water stond.",
        "Zij leest liever oude brieven dan de krant.",
        "Kunt u mij vertellen waar het station is?",
    ),
    "Swedish": (
        "Tåget till {place} är {n} minuter sent på grund av snön.",
        "Min farfar byggde stugan vid sjön för {n} år sedan.",
        "Skolan ska få ett nytt bibliotek år {year}.",
        "Hon glömde nycklarna på bordet och kom inte in.",
        "På vintern går solen ner redan mitt på eftermiddagen.",
    ),
    "Polish": (
        "Pociąg do {place} odjeżdża za {n} minut z drugiego peronu.",
        "Moja babcia od {n} lat zbiera stare pocztówki.",
        "W {year} roku miasto zbuduje nowy most nad rzeką.",
        "Zgubiłem parasol i wróciłem do domu cały mokry.",
        "Dzieci lubią bawić się w parku obok szkoły.",
    ),
    "Czech": (
        "Vlak do města odjíždí za {n} minut, ale ještě tu není.",
        "Můj dědeček opravuje hodiny už {n} let.",
        "Knihovna bude zavřená až do roku {year}.",
        "Včera večer pršelo, a proto jsme zůstali doma.",
    ),
    "Danish": (
        "Min søster flyttede til {place} for {n} år siden.",
        "Butikken lukker klokken {n}, også om lørdagen.",
        "Kommunen vil plante nye træer langs vejen i {year}.",
        "Vi cyklede hjem i regnen og drak varm te.",
    ),
    "Romanian": (
        "Trenul spre {place} are o întârziere de {n} minute.",
        "Bunica mea face pâine în fiecare duminică dimineața.",
        "Primăria vrea să repare podul până în {year}.",
        "Am uitat umbrela acasă și m-am udat.",
    ),
    "Turkish": (
        "Kardeşim {n} yıldır {place} şehrinde yaşıyor.",
        "Kütüphane her gün saat {n} civarında açılır.",
        "Dün akşam yağmur yağdı, bu yüzden evde kaldık.",
        "Belediye köprüyü {year} yılında onaracak.",
    ),
    "Indonesian": (
        "Kereta ke {place} terlambat {n} menit karena hujan deras.",
        "Nenek saya menanam mangga di halaman sejak {n} tahun yang lalu.",
        "Perpustakaan baru akan dibuka pada tahun {year}.",
        "Anak-anak bermain di tepi sungai setiap sore.",
    ),
    "Russian": (
        "Поезд опаздывает на {n} минут из-за снега.",
        "Моя бабушка уже {n} лет собирает старые открытки.",
        "Новый мост построят к {year} году.",
        "Вчера вечером мы долго говорили о музыке.",
        "Я забыл ключи дома и ждал соседа на лестнице.",
    ),
    "Chinese": (
        "去机场的公共汽车每{n}分钟一班。",
        "我奶奶在院子里种了{n}棵苹果树。",
        "新的图书馆将在{year}年开放。",
        "昨天晚上下雨了，所以我们没有出门。",
    ),
    "Japanese": (
        "電車は雪のために{n}分遅れています。",
        "祖父は{n}年前からこの町に住んでいます。",
        "新しい図書館は{year}年に開きます。",
        "昨日は雨が降ったので、家で本を読みました。",
    ),
}
_WEIGHTS = [len(sentences) for sentences in _SENTENCES.values()]


def translations(chance: random.Random) -> Iterator[str]:
    """Passages of two to four sentences to translate, without end; a language with more sentences comes more often."""
    while True:
        (language,) = chance.choices(list(_SENTENCES), _WEIGHTS)
        among = _SENTENCES[language]
        chosen = chance.sample(among, min(len(among), chance.randint(2, 4)))
        text = ("" if language in ("Chinese", "Japanese") else " ").join(chosen)
        filled = text.format(n=chance.randint(5, 30), year=chance.randint(2026, 2045), place=chance.choice(_PLACES))
        yield chance.choice(_FORMS).format(language=language, text=filled)
