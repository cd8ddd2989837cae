"""Words that prompts are put together from."""


def _words(joined: str) -> list[str]:
    return joined.split("|")


COUNTRIES = _words(
    "Argentina|Australia|Austria|Bolivia|Brazil|Canada|Chile|China|Colombia|Croatia|Cuba|Denmark|Egypt|Ethiopia|"
    "Finland|France|Germany|Ghana|Greece|Hungary|Iceland|India|Indonesia|Ireland|Italy|Jamaica|Japan|Kenya|Latvia|"
    "Madagascar|Mexico|Mongolia|Morocco|Nepal|New Zealand|Nigeria|Norway|Peru|Poland|Portugal|Romania|Senegal|"
    "South Korea|Spain|Sweden|Switzerland|Tanzania|Thailand|Turkey|Ukraine|Vietnam"
)
ANIMALS = _words(
    "ants|badgers|bats|bears|beavers|butterflies|camels|cats|cows|crabs|crocodiles|crows|dolphins|donkeys|eagles|"
    "eels|elephants|foxes|frogs|geese|giraffes|goats|hedgehogs|horses|jellyfish|kangaroos|lions|moles|mosquitoes|"
    "octopuses|otters|owls|parrots|penguins|pigs|rabbits|salmon|seals|sharks|sheep|snails|snakes|sparrows|spiders|"
    "squirrels|storks|swans|tigers|tortoises|whales|wolves|worms"
)
TERMS = _words(
    "a black hole|a central bank|a cell membrane|a chemical bond|a constitution|a coral reef|a database index|"
    "a fault line|a food chain|a fossil|a glacier|a haiku|a hash function|a hurricane|a leap year|a metaphor|"
    "a monsoon|a mortgage|a neuron|a parliament|a patent|a placebo|a prime number|a prism|a recession|a referendum|"
    "a satellite|a solar eclipse|a sonata|a stock exchange|a tariff|a thesis|a treaty|a vitamin|an algorithm|"
    "an allergy|an antibiotic|an atom|an ecosystem|an election|an enzyme|an equinox|an isotope|an operating system|"
    "biodiversity|carbon dioxide|compound interest|democracy|dew|dopamine|electricity|encryption|entropy|erosion|"
    "evolution|fermentation|friction|gravity|humidity|hydrogen|inertia|inflation|insurance|machine learning|"
    "magnetism|migration|natural selection|noise|osmosis|ozone|photosynthesis|plate tectonics|pollination|"
    "population density|probability|quantum mechanics|radiation|refraction|relativity|rust|static electricity|"
    "supply and demand|surface tension|symbiosis|the greenhouse effect|the immune system|the industrial revolution|"
    "the liver|the Milky Way|the printing press|the Renaissance|the water cycle|thermodynamics"
)
INVENTIONS = _words(
    "the barometer|the battery|the bicycle|the camera|the compass|the dishwasher|the elevator|the fountain pen|"
    "the helicopter|the lawn mower|the light bulb|the match|the microscope|the parachute|the pencil|the piano|"
    "the radio|the refrigerator|the safety pin|the sewing machine|the steam engine|the submarine|the telephone|"
    "the telescope|the thermometer|the traffic light|the typewriter|the umbrella|the vacuum cleaner|the wheel|"
    "the wristwatch|the zip fastener"
)
MATERIALS = _words(
    "aluminium|amber|bronze|cement|chocolate|cork|cotton|glass|gold|honey|ink|iron|ivory|leather|linen|nylon|paper|"
    "petrol|plastic|porcelain|rubber|salt|silk|silver|steel|sugar|tea|wax|wine|wool"
)
PAIRS = _words(
    "an alligator and a crocodile|a comet and an asteroid|a concerto and a symphony|a crow and a raven|"
    "a fruit and a vegetable|a lake and a pond|a mile and a kilometre|a novel and a short story|"
    "a virus and a bacterium|alternating and direct current|baking soda and baking powder|"
    "butter and margarine|bees and wasps|"
    "climate and season|debit and credit|DNA and RNA|exports and imports|fog and mist|frogs and toads|"
    "granite and marble|heat and temperature|jam and marmalade|latitude and longitude|lists and tuples in Python|"
    "mass and weight|mean and median|moths and butterflies|plants and fungi|rent and a lease|speed and velocity|"
    "stalactites and stalagmites|tea and infusion|the brain and the mind|the House and the Senate|TCP and UDP"
)
TASKS = _words(
    "bake a loaf of bread|boil rice|build a birdhouse|calm a crying baby|change a bicycle tyre|choose a mattress|"
    "clean a window without streaks|cook lentils|cut my own hair|descale a kettle|draw a horse|dry herbs|"
    "fall asleep faster|fix a dripping tap|fold a paper plane|get candle wax out of a tablecloth|grow basil indoors|"
    "hang a picture straight|improve my handwriting|insulate a window|iron a shirt|keep apples over the winter|"
    "learn the names of people quickly|lower my electricity bill|make a pinhole camera|make cheese at home|"
    "memorise a poem|mend a torn seam|pack a suitcase for a week|paint a door|play a chord on the guitar|"
    "polish shoes|prepare for a job interview|prune a rose|read faster|remember a long number|remove rust from a pan|"
    "repot a plant|run five kilometres|sharpen a knife|split a restaurant bill fairly|start a diary|"
    "stop a door from squeaking|store potatoes|teach a dog to sit|tie a tie|tune a violin|unblock a sink|"
    "wash a wool sweater|write a letter of complaint"
)
NAMES = _words(
    "Ada|Amir|Anna|Ben|Carla|Chen|Clara|Daniel|Dora|Elif|Emma|Farid|Felix|Greta|Hana|Henry|Ines|Ivan|Jonas|Julia|"
    "Kofi|Lena|Liam|Lucia|Mara|Marco|Mei|Mina|Nadia|Noah|Olga|Omar|Paula|Pedro|Priya|Rosa|Ruth|Sam|Sofia|Tariq|"
    "Theo|Vera|Yuki|Zoe"
)
SURNAMES = _words(
    "Abbott|Adeyemi|Bauer|Berg|Castillo|Costa|Dahl|Duarte|Eriksen|Fischer|Fontaine|Garcia|Haddad|Hughes|Ivanova|"
    "Jensen|Keller|Kowalski|Larsen|Lopez|Marsh|Moreau|Nakamura|Novak|Okafor|Owens|Patel|Petrov|Reyes|Rossi|Sato|"
    "Schmidt|Silva|Tanaka|Thompson|Varga|Walsh|Weber|Yilmaz|Zhang"
)
TOWNS = _words(
    "Alderbrook|Ashcombe|Birchwater|Blackford|Brindlemoor|Caldermouth|Copperhill|Dunmere|Eastvale|Fallowfield|"
    "Glenhaven|Greywater|Harrowgate Bay|Hollowbridge|Ironbridge End|Kestrel Point|Larkspur|Lindenau|Mallowdale|"
    "Millbrook|Northwick|Oakhurst|Penmarsh|Quarry Bank|Ravensmoor|Saltmarsh|Silverlake|Stonebridge|Thornbury Cross|"
    "Upper Wexley|Westerholm|Willowby"
)
MONTHS = _words("January|February|March|April|May|June|July|August|September|October|November|December")
WEEKDAYS = _words("Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday")
GOODS = _words(
    "apples|balloons|bananas|beads|books|bottles|boxes|bricks|buttons|cakes|candles|cards|chairs|coins|cookies|eggs|"
    "envelopes|flowers|jars of jam|lemons|marbles|melons|mugs|oranges|pears|pencils|plates|postcards|seedlings|shells|"
    "stamps|stickers|tickets|tiles|tomatoes|toy cars"
)
TRADES = _words(
    "architect|baker|beekeeper|botanist|carpenter|cellist|chemist|doctor|engineer|farmer|geologist|gardener|"
    "historian|journalist|judge|librarian|mechanic|nurse|painter|photographer|pilot|potter|sailor|surveyor|tailor|"
    "teacher|translator|vet|watchmaker|weaver"
)
