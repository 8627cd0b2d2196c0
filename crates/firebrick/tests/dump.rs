#[test] fn dump(){ println!("{}", serde_json::to_string_pretty(&firebrick::recipe::Recipe::schema()).unwrap()); 
 let t="name=3\n[rollout] # c\ngroup_size=5\n[reward]\noverlong.buffer=3\noverlong.filter=false\n[model]\npath='x'\n[data.task]\nkind='addition'\ndigits=-1\n";
 let d=toml::de::DeTable::parse(t).unwrap(); println!("{d:#?}");
 println!("{:?}", toml::from_str::<firebrick::recipe::Recipe>(t));
 println!("{:?}", toml::from_str::<firebrick::recipe::Recipe>("[data.task]\nkind='addition'\ndigits=-1\n[model]\npath='x'\n"));
 println!("{:?}", toml::from_str::<firebrick::recipe::Recipe>("[data.task]\nkind='addition'\ndigits=1\n[model]\npath='x'\n"));
}
